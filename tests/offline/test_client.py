"""Traces of a file to whoever takes them, over real connections."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from ragmeter.config.settings import Settings
from ragmeter.ingest.files import InputFile
from ragmeter.ingest.replay import ReplayState, TraceShift
from ragmeter.offline.replay_to_agent import (
    AWAY_SECONDS,
    BATCH,
    REMIND_SECONDS,
    AgentAway,
    AgentRefused,
    replay_to_agent,
)

from tests.offline.hand import Hand
from tests.offline.taking import Taking, taking
from tests.ports import free_port
from tests.traces import START, trace_line

FULL = (429, {"Retry-After": "2"}, {"error": "the queue is full"})
DISK = (503, {"Retry-After": "5"}, {"error": "the state cannot be written"})


class Sending:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "traces.jsonl"
        self.hand = Hand()
        self.reported: list[str] = []
        self.done = ReplayState()
        self.on_sleep: Callable[[], None] = lambda: None

    def write(self, *numbers: int, extra: bytes = b"") -> None:
        self.path.write_bytes(extra + b"".join(trace_line(n) + b"\n" for n in numbers))

    def _sleep(self, seconds: float) -> None:
        self.hand.sleep(seconds)
        self.on_sleep()

    def run(
        self, url: str, rate: float | None = None, moving: TraceShift | None = None
    ) -> ReplayState:
        rng = random.Random()
        rng.uniform = lambda a, b: b  # type: ignore[method-assign]
        with httpx.Client() as client:
            return replay_to_agent(
                InputFile(self.path),
                Settings(),
                client,
                url,
                self.reported.append,
                rate=rate,
                moving=moving,
                done=self.done,
                rng=rng,
                clock=self.hand,
                sleep=self._sleep,
                wall=lambda: START + self.hand.now,
            )


@pytest.fixture
def server() -> Iterator[Taking]:
    with taking() as found:
        yield found


@pytest.fixture
def sending(tmp_path: Path) -> Sending:
    return Sending(tmp_path)


def test_a_file_is_sent_in_batches_and_in_order(server: Taking, sending: Sending) -> None:
    sending.write(*range(BATCH + 50))
    done = sending.run(server.url)
    assert [len(body) for body in server.bodies] == [BATCH, 50]
    assert server.took == [f"t{n}" for n in range(BATCH + 50)]
    assert done == ReplayState(BATCH + 50, 0, sending.path.stat().st_size, True)


def test_traces_over_several_lines_stay_one(server: Taking, sending: Sending) -> None:
    odd = trace_line(0).replace(b", ", b",\r")
    sending.path.write_bytes(odd + b"\n" + trace_line(1))
    assert sending.run(server.url).sent == 2
    assert server.took == ["t0", "t1"]


def test_a_body_is_bounded(
    server: Taking, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragmeter.offline.replay_to_agent.BATCH_BYTES", 3 * len(trace_line(0)) + 10)
    sending.write(*range(10))
    assert sending.run(server.url).sent == 10
    assert [len(body) for body in server.bodies] == [3, 3, 3, 1]


def test_what_is_sent_again_is_said_to_be_known(server: Taking, sending: Sending) -> None:
    sending.write(*range(5))
    sending.run(server.url)
    sending.done = ReplayState()
    done = sending.run(server.url)
    assert (done.sent, done.known) == (5, 5)


def test_a_full_agent_is_asked_again_when_it_says(server: Taking, sending: Sending) -> None:
    server.answers.extend([FULL, FULL, DISK])
    sending.write(*range(3))
    done = sending.run(server.url)
    assert sending.hand.slept == [2, 2, 5]
    assert server.took == ["t0", "t1", "t2"]
    assert done.sent == 3
    assert [line for line in sending.reported if "waiting" in line] == [
        f"{server.url}/v1/rag/traces: status 429: the queue is full; waiting"
    ]


def test_one_that_stays_full_is_waited_for_and_the_reason_said_again(
    server: Taking, sending: Sending
) -> None:
    count = int(4 * AWAY_SECONDS / 5)
    server.answers.extend([DISK] * count)
    sending.write(0)
    assert sending.run(server.url).sent == 1
    reminders = [line for line in sending.reported if "waiting" in line]
    assert len(reminders) == count * 5 / REMIND_SECONDS


def test_the_rate_is_kept_also_after_a_wait(server: Taking, sending: Sending) -> None:
    sending.write(*range(40))
    came: list[tuple[float, int]] = []
    answer = server.answer

    def timed(body: bytes) -> Any:
        found = answer(body)
        came.append((sending.hand.now, len(server.took)))
        return found

    server.answer = timed  # type: ignore[method-assign]
    sending.run(server.url, rate=2)
    # two a second: a trace is not kept waiting for others of its body
    assert came == [(n / 2, n + 1) for n in range(40)]

    sending.done = ReplayState()
    sending.hand = Hand()
    server.bodies.clear()
    came.clear()
    server.answers.extend([DISK] * 4)
    sending.run(server.url, rate=20)
    assert len(server.took) == 40
    # 20 s away, then a second's worth at once and the rest at 20/s: never all that was missed
    assert 20.8 < came[-1][0] < 21.1


def test_an_agent_that_restarts_is_waited_for(sending: Sending) -> None:
    port = free_port()
    sending.write(*range(3 * BATCH))
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        server = first.enter_context(taking(port))
        later: list[Taking] = []
        answer = server.answer

        def once(body: bytes) -> Any:
            server.answer = lambda _: (500, {}, None)  # type: ignore[assignment, method-assign]
            return answer(body)

        def restart() -> None:
            if len(sending.hand.slept) == 2:
                first.close()
            if len(sending.hand.slept) == 5:
                later.append(stack.enter_context(taking(port)))

        server.answer = once  # type: ignore[method-assign]
        sending.on_sleep = restart
        done = sending.run(f"http://127.0.0.1:{port}")
    assert done.sent == 3 * BATCH
    assert server.took + later[0].took == [f"t{n}" for n in range(3 * BATCH)]
    assert sending.hand.slept == [0.5, 1, 2, 4, 8]  # a longer pause each time


def test_one_that_does_not_come_back_is_given_up_and_the_place_is_known(sending: Sending) -> None:
    sending.write(*range(2 * BATCH))
    with ExitStack() as stack:
        server = stack.enter_context(taking())
        url, answer = server.url, server.answer

        def last(body: bytes) -> Any:
            found = answer(body)
            server.answer = lambda _: (502, {}, None)  # type: ignore[assignment, method-assign]
            return found

        server.answer = last  # type: ignore[method-assign]
        sending.on_sleep = stack.close
        with pytest.raises(AgentAway, match=r"refused.*, for 300 s"):
            sending.run(url)
    assert AWAY_SECONDS < sending.hand.now < AWAY_SECONDS + 21
    sent = sending.done.sent
    assert 0 < sent <= BATCH  # a body goes before it is full where the file is read slowly
    assert not sending.done.finished
    with taking() as other:
        sending.on_sleep = lambda: None
        sending.done = ReplayState()
        sending.run(other.url)
        assert other.took == [f"t{n}" for n in range(2 * BATCH)]


def test_one_that_was_never_there_is_said_at_once(sending: Sending) -> None:
    sending.write(0)
    with pytest.raises(AgentAway, match=r"Connection refused; is `ragmeter run` up\?"):
        sending.run(f"http://127.0.0.1:{free_port()}")
    assert sending.hand.slept == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((401, {}, {"error": "a token is needed"}), r"401: a token is needed; the token is that"),
        ((404, {}, None), r"404; is it the port for traces"),
        ((200, {}, {"hello": 1}), "no answer of an agent"),
        ((200, {}, {"accepted": 1, "duplicates": 0, "rejected": 0}), "answers for 1 of 2 traces"),
    ],
)
def test_what_never_becomes_better_ends_it(
    server: Taking, sending: Sending, answer: Any, why: str
) -> None:
    server.answers.append(answer)
    sending.write(0, 1)
    with pytest.raises(AgentRefused, match=why):
        sending.run(server.url)
    assert (server.asked, sending.done.sent, sending.done.position) == (1, 0, 0)


def test_a_body_that_is_too_large_there_is_halved(server: Taking, sending: Sending) -> None:
    server.most = 2
    sending.write(*range(7))
    assert sending.run(server.url).sent == 7
    assert server.took == [f"t{n}" for n in range(7)]
    server.most = 0
    sending.done = ReplayState()
    done = sending.run(server.url)
    assert (done.sent, done.refused) == (0, 7)
    assert "too large; refused" in sending.reported[0]


def test_what_the_agent_refuses_is_named_and_counted(server: Taking, sending: Sending) -> None:
    server.refuse = {"t1"}
    sending.write(0, 1, 2, extra=b"{broken\n")
    done = sending.run(server.url)
    assert (done.sent, done.bad, done.refused) == (2, 1, 1)
    assert "invalid_json" in sending.reported[0]
    second = len(b"{broken\n") + len(trace_line(0)) + 1 + len(trace_line(1)) + 1
    assert sending.reported[1].startswith(f"{sending.path}, before {second}: invalid_trace")


def test_a_trace_is_dated_when_it_is_sent(server: Taking, sending: Sending) -> None:
    sending.write(100, 200, 300)
    sending.run(server.url, rate=0.5, moving=TraceShift(None))
    times = [item.trace.timestamp.timestamp() for body in server.bodies for item in body]
    assert times == [START, START + 2, START + 4]


def test_memory_is_bounded_by_the_batch(server: Taking, sending: Sending) -> None:
    """A file of 120 MB, sent while no more than a part of it is held, collector or not."""
    with sending.path.open("wb") as file:
        for number in range(1200):
            file.write(trace_line(number, answer="x" * 100_000) + b"\n")

    def counted(body: bytes) -> Any:
        count = body.count(b"\n") + 1
        return 200, {}, {"accepted": count, "duplicates": 0, "rejected": 0}

    server.answer = counted  # type: ignore[method-assign]
    gc.disable()  # when it runs differs with the version of Python
    tracemalloc.start()
    try:
        assert sending.run(server.url).sent == 1200
        # a body, its parts, those of the server and 64 traces read ahead
        assert tracemalloc.get_traced_memory()[1] < 48 * 2**20
    finally:
        tracemalloc.stop()
        gc.enable()
