"""Bodies that would cost too much, come too slowly or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import json
import os
import random
import threading
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from ragmeter.app.embedded_agent import serve_agent
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.errors import QueueFull
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.endpoints import json_items, request_bodies
from ragmeter.embedded.endpoints.json_items import TracesEndpoint
from ragmeter.embedded.endpoints.request_bodies import (
    LARGE_BODY,
    BodyReader,
    GroupCommit,
    RequestDeferred,
    RequestRefused,
    gunzip,
)
from ragmeter.ingest.native import DecodedTrace, DecodeFailure

from tests.embedded.endpoints.test_traces import BODY_LIMIT, TRACE_LIMIT, Server, run
from tests.system.hostile_senders import BODIES, post
from tests.traces import trace_line
from tests.waiting import PATIENCE, until_async


def test_a_body_of_very_many_items_is_refused_as_a_whole(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        for body in (b"[" + b"1," * 100_000 + b"1]", b"1\n" * 100_000 + b"{}"):
            status, reply = await server.post(gzip.compress(body), **{"Content-Encoding": "gzip"})
            assert status == 413
            assert "more than 100000 items" in reply["error"]
        assert not server.running.counters.get(
            "ragmeter_dead_letters_total", (("reason", "invalid_trace"),)
        )

    run(tmp_path, test, body_limit=1_000_000)


def test_bad_items_beyond_those_named_are_counted_by_reason(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        body = b"1\n{\n" * 500 + trace_line(1)
        status, reply = await server.post(body)
        assert (status, reply["accepted"], reply["rejected"]) == (200, 1, 1000)
        assert len(reply["errors"]) == 100
        for reason in ("invalid_trace", "invalid_json"):
            labels = (("reason", reason),)
            counted = server.running.counters.get("ragmeter_dead_letters_total", labels)
            assert counted == 500

    run(tmp_path, test)


def test_bad_items_beyond_those_named_keep_no_bytes(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        endpoint = TracesEndpoint(server.running, BodyReader(BODY_LIMIT), TRACE_LIMIT)
        items = endpoint._decode(b"nonsense\n" * 300 + trace_line(1))
        assert len({id(item) for item in items}) == 102
        assert not any(item.raw for item in items if isinstance(item, DecodeFailure))

    run(tmp_path, test)


def test_gzip_of_very_many_members_is_refused_at_once() -> None:
    member = gzip.compress(b"x")
    assert gunzip(member * 1_000, BODY_LIMIT) == b"x" * 1_000
    begun = time.process_time()
    with pytest.raises(RequestRefused, match="1000 gzip members"):
        gunzip(member * 900_000, 20 * 2**20)
    assert time.process_time() - begun < 1  # a minute where each member copies the rest


def test_gzip_members_may_end_anywhere() -> None:
    parts = [bytes([n % 251]) * (n * 37 % 3000) for n in range(900)]
    parts.append(random.Random(1).randbytes(200_000))
    body = b"".join(map(gzip.compress, parts))
    assert gunzip(body, 2**22) == b"".join(parts)
    with pytest.raises(RequestRefused, match="cut off"):
        gunzip(body[:-3], 2**22)


async def half(
    server: Server, sent: int, length: int = BODY_LIMIT
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request that stops after `sent` bytes of its body."""
    host, port = server.url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST /v1/rag/traces HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()
    )
    writer.write(b" " * sent)
    await writer.drain()
    return reader, writer


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        reader, writer = await half(server, 10)
        assert b" 503 " in await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()

    run(tmp_path, test, read_seconds=0.2)


def test_half_sent_bodies_together_are_bounded(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        clients = [await half(server, BODY_LIMIT - 10) for _ in range(6)]
        answers = [asyncio.create_task(reader.readline()) for reader, _ in clients]
        await until_async(lambda: sum(task.done() for task in answers) >= 2)
        await asyncio.sleep(0.2)  # a third would be answered by now
        done = [task for task in answers if task.done()]
        assert len(done) == 2
        assert all(b" 429 " in task.result() for task in done)
        for task in answers:
            task.cancel()
        for _, writer in clients:
            writer.close()
        async with asyncio.timeout(PATIENCE):  # and what they held is free again
            while (await server.post(trace_line(1) + b" " * (BODY_LIMIT // 2)))[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    run(tmp_path, test)


def test_stalled_bodies_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "_STALLED_SECONDS", 0.2)

    async def test(server: Server) -> None:
        clients = [await half(server, BODY_LIMIT - 10) for _ in range(4)]
        await asyncio.sleep(0.5)
        line = trace_line(1)
        body = line + b" " * (BODY_LIMIT - 20 - len(line))
        assert (await server.post(body))[0] == 200
        answers = [asyncio.create_task(reader.readline()) for reader, _ in clients]
        await until_async(lambda: any(task.done() for task in answers))
        await asyncio.sleep(0.2)  # a second would be answered by now
        done = [task for task in answers if task.done()]
        assert [task.result().split()[1] for task in done] == [b"429"]
        for task in answers:
            task.cancel()
        for _, writer in clients:
            writer.close()

    run(tmp_path, test)


def test_small_bodies_have_room_of_their_own(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        clients = [await half(server, BODY_LIMIT - 10) for _ in range(4)]
        line = trace_line(1)
        assert len(line) <= BODY_LIMIT // 64 < BODY_LIMIT
        assert (await server.post(line))[0] == 200
        assert (await server.post(line + b" " * (BODY_LIMIT // 2)))[0] == 429
        for _, writer in clients:
            writer.close()

    run(tmp_path, test)


def test_a_body_has_to_make_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "_STRIDE_SECONDS", 0.5)

    async def test(server: Server) -> None:
        reader, writer = await half(server, 1)
        answer = asyncio.create_task(reader.readline())
        while not answer.done():  # never silent
            writer.write(b" ")
            await asyncio.sleep(0.05)
        assert b" 503 " in answer.result()
        writer.close()

    run(tmp_path, test)


def test_a_peer_that_holds_more_than_its_share_gives_way() -> None:
    async def test() -> None:
        bodies = BodyReader(BODY_LIMIT)
        now = asyncio.get_running_loop().time()
        crowd = [request_bodies._Transfer("192.0.2.1", now) for _ in range(4)]
        async with contextlib.AsyncExitStack() as stack:
            for number, one in enumerate(crowd):
                one.deadline = await stack.enter_async_context(asyncio.timeout(60))
                bodies._transfers.add(one)
                bodies._hold(one, BODY_LIMIT)
                one.advance(1_000 * (4 - number), now)
            mate = request_bodies._Transfer("192.0.2.1", now)
            bodies._transfers.add(mate)
            with pytest.raises(RequestDeferred, match="too many"):
                bodies._hold(mate, BODY_LIMIT)
            bodies._hold(request_bodies._Transfer("192.0.2.2", now), BODY_LIMIT)
            assert [one.evicted for one in crowd] == [False, False, False, True], "the slowest"
            evicted = crowd[3].deadline
            assert evicted is not None
            evicted.reschedule(None)

    asyncio.run(test())


def test_a_large_body_is_decoded_apart_and_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [
        b"[%s,%s,{}]" % (trace_line(1), trace_line(2)),
        b"%s\nno json\n%s" % (trace_line(3), trace_line(4)),
        json.dumps(json.loads(trace_line(5)), indent=1).encode(),
        b"[1, 2",
        b"",
        b"{}\n" * 100_001,
    ]
    seen = []
    for large in (2**30, 1):
        folder = tmp_path / str(large)
        folder.mkdir()
        for module in (request_bodies, json_items):
            monkeypatch.setattr(module, "LARGE_BODY", large)

        async def test(server: Server) -> None:
            packed = [gzip.compress(body) for body in bodies]
            seen.append([await server.post(one, **{"Content-Encoding": "gzip"}) for one in packed])

        run(folder, test, body_limit=1_000_000)
    assert [status for status, _ in seen[0]] == [200, 200, 200, 400, 400, 413]
    assert seen[0] == seen[1]


@pytest.mark.parametrize("large", [2**30, 1])
@pytest.mark.parametrize("body", [b"[" + b'"a",' * 250_000 + b"1]", b" " * 1_000_000 + b"[1, 2"])
def test_a_refused_body_is_freed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, large: int
) -> None:
    """Without a garbage collection: under load the next one may be minutes away."""
    for module in (request_bodies, json_items):
        monkeypatch.setattr(module, "LARGE_BODY", large)

    async def test(server: Server) -> None:
        packed = gzip.compress(body)
        await server.post(packed, **{"Content-Encoding": "gzip"})
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(2):
                status, _ = await server.post(packed, **{"Content-Encoding": "gzip"})
                assert status in (400, 413)
            assert tracemalloc.get_traced_memory()[1] > len(body) / 2
            await until_async(lambda: tracemalloc.get_traced_memory()[0] < len(body) / 2)
        finally:
            tracemalloc.stop()
            gc.enable()

    run(tmp_path, test, body_limit=2_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("size", [LARGE_BODY - 1_000, 19 * 2**20])
@pytest.mark.parametrize("name", BODIES)
def test_decoding_leaves_the_event_loop_its_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: int
) -> None:
    """Counted in time of processors, of all threads: it is the same on a machine that is busy."""
    monkeypatch.setattr("tests.system.hostile_senders._SIZE", size)
    path, kind, body = BODIES[name]()
    paths = {"path": str(tmp_path / "s.sqlite")}
    ports = {"otlp_port": 0, "metrics_port": 0}
    settings = load_settings(environ={}, overrides={"state": paths, "http": ports})
    agent = EmbeddedAgent(settings, [], parts=PARTS)

    async def test() -> None:
        async with serve_agent(agent, settings) as (url, _):
            gc.disable()  # it would visit all objects of the tests, which the agent freezes
            sender = asyncio.create_task(asyncio.to_thread(post, url, path, kind, body))
            longest = 0.0
            last = time.process_time()
            while not sender.done():
                await asyncio.sleep(0.001)
                now = time.process_time()
                longest = max(longest, now - last)
                last = now
            assert await sender in ("200", "400", "413")
            assert longest < 0.25, "seconds within which small requests are answered"

    try:
        asyncio.run(test())
    finally:
        gc.enable()
        agent._store.close()


def test_a_short_body_waits_for_no_long_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_bodies, "_SHORT_BODY", 2_000)
    monkeypatch.setattr(json_items, "SMALL_BODY", 0)
    go = threading.Event()
    decode = TracesEndpoint._decode

    def slowly(self: TracesEndpoint, body: bytes) -> list[DecodedTrace | DecodeFailure]:
        if len(body) > 2_000:
            assert go.wait(PATIENCE)
        return decode(self, body)

    monkeypatch.setattr(TracesEndpoint, "_decode", slowly)

    async def test(server: Server) -> None:
        long = [
            asyncio.create_task(server.post(trace_line(number) + b" " * 5_000))
            for number in range(3)
        ]
        await asyncio.sleep(0.2)
        assert (await server.post(trace_line(9)))[0] == 200
        assert not any(task.done() for task in long)
        go.set()
        assert [status for status, _ in await asyncio.gather(*long)] == [200] * 3

    run(tmp_path, test)


def die(*_: object) -> None:
    os.abort()


def test_a_decoder_that_dies_is_a_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "LARGE_BODY", 1)
    monkeypatch.setattr(json_items, "LARGE_BODY", 1)
    monkeypatch.setattr(json_items, "iterate_lines", die)

    async def test(server: Server) -> None:
        assert (await server.post(trace_line(1)))[0] == 503

    run(tmp_path, test)


def test_a_broken_body_is_a_400(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        host, port = server.url.split("/")[2].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/rag/traces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        writer.write(b"nonsense\r\n")
        assert b" 400 " in await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()

    run(tmp_path, test)


def test_concurrent_requests_share_commits_of_a_bounded_size_and_their_error() -> None:
    entered, go = threading.Event(), threading.Event()
    commits: list[list[str]] = []

    def write(items: Sequence[str]) -> list[str]:
        commits.append(list(items))
        entered.set()
        assert go.wait(PATIENCE)
        if "bad" in items:
            raise QueueFull
        return [item.upper() for item in items]

    async def test() -> None:
        group = GroupCommit(write, most=3)
        await group.start()
        first = asyncio.create_task(group.commit("a", 1))
        await asyncio.to_thread(entered.wait, PATIENCE)
        rest = [asyncio.create_task(group.commit(item, 1)) for item in ("b", "c", "d", "e", "bad")]
        large = asyncio.create_task(group.commit("large", 9))
        await asyncio.sleep(0)
        assert len(group) == 14
        rest[0].cancel()  # a client that goes: what it sent is written all the same
        go.set()
        await group.stop()  # what waits is written first
        found = await asyncio.gather(first, *rest, large, return_exceptions=True)
        assert [found[0], *found[2:4], found[-1]] == ["A", "C", "D", "LARGE"]
        assert isinstance(found[1], asyncio.CancelledError)
        assert all(isinstance(error, QueueFull) for error in found[4:6])
        assert len(group) == 0

    asyncio.run(test())
    assert commits == [["a"], ["b", "c", "d"], ["e", "bad"], ["large"]]
