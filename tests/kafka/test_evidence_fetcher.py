"""The texts of the worst traces, from a topic that is a dictionary here."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.kafka.evidence_fetcher import EvidenceFetcher, TraceTopicReader
from ragmeter.kafka.processors.delivery import TracePreparer
from ragmeter.kafka.state import evidence_rows
from ragmeter.kafka.state.evidence_rows import EvidenceRows
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state_group import StateGroup
from ragmeter_exporters.page.traces import TraceView, trace_parts

from tests.embedded.test_privacy import MAIL
from tests.kafka.settings import settings_of
from tests.kafka.state.partition import Owned, apply, commit, record, reloaded, state_of
from tests.traces import START, trace_line
from tests.waiting import until_async

WORST: dict[str, Any] = {"answer": "It costs 99 euros [7]."}


class Log:
    """Messages by (partition, offset); an exception is raised."""

    def __init__(self, *lines: Any) -> None:
        self.messages = {(0, offset): line for offset, line in enumerate(lines)}
        self.asked: list[tuple[int, int]] = []

    async def read(self, partition: int, offset: int) -> bytes | None:
        self.asked.append((partition, offset))
        found = self.messages.get((partition, offset))
        if isinstance(found, Exception):
            raise found
        return found

    async def close(self) -> None: ...


def lines(count: int, **changes: Any) -> list[bytes]:
    return [trace_line(n, **{**WORST, **changes}) for n in range(count)]


def worst_of(count: int, settings: Settings | None = None) -> PartitionState:
    state = state_of(settings)
    apply(state, [record(n, **WORST) for n in range(count)])
    commit(state, {})
    assert len(state.evidence.missing_texts()) == count
    return state


class Fetching:
    """One fetcher of the states, with a clock that is set by hand."""

    def __init__(self, log: Log, *states: PartitionState, most: int = 64, **tree: Any) -> None:
        self.group = Owned(dict(enumerate(states)))
        self.now = 0.0
        settings = settings_of(**tree)
        self.fetcher = EvidenceFetcher(
            settings,
            cast(StateGroup, self.group),
            TracePreparer(settings, Counters()),
            cast(TraceTopicReader, log),
            most=most,
            pause=0.0,
            monotonic=lambda: self.now,
        )

    def turn(self) -> int:
        return asyncio.run(self.fetcher.run_once())


def kept(state: PartitionState, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(state.evidence.get(("bot", f"t{number}")) or b"{}")
    return found


def test_texts_are_read_at_their_place_and_survive_the_owner() -> None:
    rows: dict[bytes, bytes] = {}
    state = state_of()
    apply(state, [record(n, **WORST) for n in range(3)])
    commit(state, rows)
    assert Fetching(Log(*lines(3)), state).turn() == 3
    assert state.changed
    assert not state.evidence.missing_texts()
    state = reloaded(commit(state, rows))
    found = kept(state, 2)
    assert found["trace"]["answer"] == WORST["answer"]
    assert found["trace"]["passages"]
    assert {item["metric"] for item in found["results"]} >= {"citation_precision"}
    assert not state.evidence.missing_texts()


@pytest.mark.parametrize(
    "message",
    [
        None,
        b"{broken",
        trace_line(77, answer="Another trace lies there: the topic was made anew."),
    ],
)
def test_what_is_gone_says_so_and_is_not_asked_for_again(message: bytes | None) -> None:
    state = worst_of(1)
    log = Log(message)
    fetching = Fetching(log, state)
    assert fetching.turn() == 1
    assert fetching.turn() == 0
    assert kept(state, 0)["trace"]["content"] == "gone"
    assert kept(state, 0)["results"]
    assert "Another" not in json.dumps(kept(state, 0))


def test_a_turn_is_bounded_and_the_rest_comes_later() -> None:
    state = worst_of(5)
    log = Log(*lines(5))
    fetching = Fetching(log, state, most=2)
    assert [fetching.turn() for _ in range(4)] == [2, 2, 1, 0]
    assert len(log.asked) == 5


async def asked_at_once(fetching: Fetching, log: Log, least: int) -> int:
    running = asyncio.create_task(fetching.fetcher.run())
    await until_async(lambda: len(log.asked) >= least)
    await asyncio.sleep(0.3)  # for more than that
    running.cancel()
    return len(log.asked)


def test_slow_turns_are_followed_by_long_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    state = worst_of(5)
    log = Log(*lines(5))
    assert asyncio.run(asked_at_once(Fetching(log, state, most=1), log, 5)) == 5
    state = worst_of(5)
    log = Log(*lines(5))
    fetching = Fetching(log, state, most=1)
    read = log.read

    async def slowly(partition: int, offset: int) -> bytes | None:
        fetching.now += 1.0
        return await read(partition, offset)

    monkeypatch.setattr(log, "read", slowly)
    assert asyncio.run(asked_at_once(fetching, log, 1)) == 1


def test_one_state_does_not_starve_another() -> None:
    states = [worst_of(5), worst_of(5)]
    Fetching(Log(*lines(5)), *states, most=4).turn()
    assert [len(state.evidence.missing_texts()) for state in states] == [3, 3]


def test_what_cannot_be_read_now_is_left_alone_for_a_while_and_others_go_on() -> None:
    state = worst_of(2)
    log = Log(ConnectionError("no broker"), *lines(2)[1:])
    fetching = Fetching(log, state)
    assert fetching.turn() == 0
    assert fetching.turn() == 1
    assert fetching.turn() == 0
    assert kept(state, 0)["trace"]["content"] == "pending"
    log.messages[0, 0] = lines(1)[0]
    fetching.now += 61
    assert fetching.turn() == 1
    assert kept(state, 0)["trace"]["answer"] == WORST["answer"]


def test_texts_have_so_much_room_and_more_when_others_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence_rows, "TEXT_BYTES", 1000)
    state = worst_of(5)
    log = Log(*lines(5))
    fetching = Fetching(log, state, most=1)
    while fetching.turn():
        pass
    texts = [n for n in range(5) if kept(state, n)["trace"].get("answer")]
    assert 1 <= len(texts) < 5
    (other, *_) = [n for n in range(5) if n not in texts]
    assert kept(state, other)["trace"]["content"] == "crowded"
    rows: dict[bytes, bytes] = {}
    commit(state, rows)
    for n in range(40, 43):  # a day later all of them have been let go
        apply(state, [record(n, timestamp=START + 90_000 + n * 100, **WORST)])
        commit(state, rows)
    assert state.evidence.get(("bot", f"t{texts[0]}")) is None
    log.messages |= {(0, n): line for n, line in enumerate(lines(43))}
    assert fetching.turn()


def test_a_worker_that_lost_the_partition_meanwhile_is_no_trouble() -> None:
    state = worst_of(1)
    fetching = Fetching(Log(*lines(1)), state)
    wanted = fetching.fetcher._missing_texts()
    fetching.group.held.clear()
    fetching.fetcher._missing_texts = lambda: wanted  # type: ignore[method-assign]
    assert fetching.turn() == 1
    assert len(state.evidence.missing_texts()) == 1


def test_secrets_are_redacted_and_texts_kept_as_the_settings_say() -> None:
    secretive = lines(1, query=f"Who is {MAIL}?")
    state = worst_of(1)
    Fetching(Log(*secretive), state, privacy={"redact": ["email"]}).turn()
    assert kept(state, 0)["trace"]["query"] == "Who is [email]?"
    privacy = {"content": "hash", "hash_key": "k"}
    state = worst_of(1, settings_of(privacy=privacy))
    Fetching(Log(*secretive), state, privacy=privacy).turn()
    trace = kept(state, 0)["trace"]
    assert MAIL not in json.dumps(trace)
    assert trace["query"] is None
    assert trace["not_kept"]["query"]["blake2b"]


def test_a_stricter_setting_lets_go_of_what_was_kept() -> None:
    kept = EvidenceRows(ContentPolicy())
    kept.add(("bot", "t1"), record(1))
    kept.save_text(("bot", "t1"), b'{"trace": {}, "results": []}')
    rows: list[tuple[list[Any], bytes]] = [
        (["bot", "t1"], data) for data in kept.changes.values() if data
    ]
    same, stricter = (
        EvidenceRows(ContentPolicy()),
        EvidenceRows(ContentPolicy(PrivacySettings(content="none"))),
    )
    same.load(rows, "full")
    assert same.get(("bot", "t1"))
    assert not same.changes
    stricter.load(rows, "full")
    assert stricter.get(("bot", "t1")) is None
    assert list(stricter.changes.values()) == [None]


@pytest.mark.parametrize(
    ("content", "words"), [("gone", "no more"), ("pending", "moment"), ("crowded", "room")]
)
def test_the_page_says_why_there_is_no_text(content: str, words: str) -> None:
    view = TraceView(cast(Any, None), "bot", "t1", {"trace_id": "t1", "content": content}, [])
    assert words in trace_parts(view)["content_note"]
