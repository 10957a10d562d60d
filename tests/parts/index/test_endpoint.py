"""`POST /v1/index` through the real ports of a running agent, and what is left after a kill."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
from ragmeter.app.embedded_agent import serve_agent
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.endpoints.json_items import MAX_REJECTED

from tests.parts.index.samples import event_dict, event_line
from tests.traces import trace_line
from tests.waiting import PATIENCE

Post = Callable[..., Awaitable[tuple[int, dict[str, Any]]]]


class Agent:
    def __init__(self, running: EmbeddedAgent, client: httpx.AsyncClient, urls: tuple[str, str]):
        self.running, self.client = running, client
        self.traces, self.page = urls

    async def post(self, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
        reply = await self.client.post(f"{self.traces}/v1/index", content=body, headers=headers)
        return reply.status_code, reply.json()

    async def text(self, path: str = "/metrics") -> str:
        return (await self.client.get(f"{self.page}{path}")).text


def run(
    tmp_path: Path,
    test: Callable[[Agent], Awaitable[None]],
    *,
    killed: bool = False,
    **changes: Any,
) -> None:
    """`killed`: the agent gets no chance to end in order."""
    settings = load_settings(
        environ={},
        overrides={
            "http": {"otlp_port": 0, "metrics_port": 0},
            "state": {"path": str(tmp_path / "s")},
            **changes,
        },
    )

    async def body() -> None:
        running = EmbeddedAgent(settings, [], parts=PARTS)
        running.start()
        try:
            async with (
                serve_agent(running, settings) as urls,
                httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client,
            ):
                await test(Agent(running, client, urls))
        finally:
            if killed:
                running._store.close()  # the worker finds nothing to write to any more
            await asyncio.to_thread(running.stop, 5)

    asyncio.run(body())


def accepted(number: int, duplicates: int = 0, rejected: int = 0) -> dict[str, Any]:
    return {
        "accepted": number,
        "duplicates": duplicates,
        "old_versions": 0,
        "rejected": rejected,
    }


def test_what_was_answered_is_there_after_a_kill_and_counts_once(tmp_path: Path) -> None:
    async def first(agent: Agent) -> None:
        body = event_line(1) + b"\n" + event_line(2)
        assert await agent.post(body) == (200, accepted(2))

    async def second(agent: Agent) -> None:
        before = await agent.text()
        assert 'rag_index_documents{service="bot",index="kb",index_version="v1"} 80' in before
        repeated = gzip.compress(event_line(2))
        assert await agent.post(repeated, **{"Content-Encoding": "gzip"}) == (200, accepted(0, 1))
        body = json.dumps([event_dict(2), event_dict(3)]).encode()
        assert await agent.post(body) == (200, accepted(1, 1))
        text = await agent.text()
        assert 'rag_index_documents{service="bot",index="kb",index_version="v1"} 120' in text
        assert 'ragmeter_index_events_total{outcome="counted"} 3' in text
        assert 'ragmeter_index_events_total{outcome="duplicate"} 2' in text

    run(tmp_path, first, killed=True)
    run(tmp_path, second)


def test_bad_events_are_named_counted_and_cost_no_others(tmp_path: Path) -> None:
    async def test(agent: Agent) -> None:
        status, reply = await agent.post(event_line(1) + b"\n{x\n" + event_line(2, event_id=""))
        assert (status, reply["accepted"], reply["rejected"]) == (200, 1, 2)
        assert [(one["index"], one["reason"]) for one in reply["errors"]] == [
            (1, "invalid_json"),
            (2, "invalid_index_event"),
        ]
        status, reply = await agent.post(b"\n".join([b"{}"] * 500))
        assert (status, reply["rejected"], len(reply["errors"])) == (400, 500, MAX_REJECTED)
        assert (await agent.post(b""))[0] == 400
        assert (await agent.post(b"\n".join([b"{}"] * 1001)))[0] == 413
        assert (await agent.post(b"x" * 2_000_001))[0] == 413
        text = await agent.text()
        assert 'ragmeter_dead_letters_total{reason="invalid_index_event"} 501' in text
        assert 'ragmeter_dead_letters_total{reason="invalid_json"} 1' in text

    run(tmp_path, test, limits={"body_bytes": 2_000_000})


def test_a_time_from_the_future_is_that_of_arrival(tmp_path: Path) -> None:
    async def test(agent: Agent) -> None:
        await agent.post(event_line(1, timestamp="2199-01-01T00:00:00Z"))
        (found,) = agent.running.part_pages()
        (version,) = found.context["versions"]
        assert version.build.last < 4e9

    run(tmp_path, test)


def test_the_page_shows_versions_and_escapes_them(tmp_path: Path) -> None:
    async def test(agent: Agent) -> None:
        assert "Indexes" not in await agent.text("/")
        types = {"<b>": {"processed": 25, "no_chunks": 2}}
        documents = {"processed": 40, "no_chunks": 2, "by_type": types}
        version = "<script>alert(1)</script>"
        await agent.post(event_line(1, index_version=version, documents=documents))
        page = await agent.text("/")
        assert "<small>&lt;b&gt; 25, not_reported 15</small>" in page
        assert "<small>&lt;b&gt; 2</small>" in page
        assert "Indexes" in page
        assert "recursive-512 + e5-small" in page
        assert "<script>alert" not in page
        assert "&lt;script&gt;" in page

    run(tmp_path, test)


def test_windows_can_be_compared_across_index_versions(tmp_path: Path) -> None:
    """The version that a trace names is a segment under the same label."""

    async def test(agent: Agent) -> None:
        await agent.post(
            event_line(1, index_version="v1") + b"\n" + event_line(2, index_version="v2")
        )
        lines = [
            trace_line(number, tags={"index_version": f"v{1 + number % 2}"}) for number in range(40)
        ]
        url = f"{agent.traces}/v1/rag/traces"
        assert (await agent.client.post(url, content=b"\n".join(lines))).status_code == 200
        await asyncio.to_thread(agent.running.wait_idle)
        text = await agent.text()
        detail = await agent.text("/metrics/detail")
        for version in ("v1", "v2"):
            assert f'question="works",tag="index_version",value="{version}"' in text
            assert f'index="kb",index_version="{version}"' in text
            assert f'rag_grounding_mean{{service="bot",index_version="{version}",' in detail

    run(tmp_path, test, segments=["index_version"])


def test_an_agent_that_has_ended_takes_nothing(tmp_path: Path) -> None:
    async def test(agent: Agent) -> None:
        agent.running._worker.ended = True
        status, reply = await agent.post(event_line(1))
        assert (status, list(reply)) == (503, ["error"])
        agent.running._worker.ended = False

    run(tmp_path, test)


def test_the_documented_command_works_and_gives_the_documented_gauges(tmp_path: Path) -> None:
    docs = Path(__file__).parents[3] / "docs"
    found = re.search(r"/v1/index -d '(\{.*?\})'", (docs / "traces.md").read_text(), re.S)
    assert found is not None
    body = found[1].encode()

    async def test(agent: Agent) -> None:
        assert await agent.post(body) == (200, accepted(1))
        text = await agent.text()
        named = set(re.findall(r"`(rag_index_[a-z0-9_]+)`", (docs / "metrics.md").read_text()))
        assert len(named) > 6
        assert {name for name in named if f"\n{name}{{" not in text} == set()

    run(tmp_path, test)
