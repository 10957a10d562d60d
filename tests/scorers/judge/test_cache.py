from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.judge.cache import CachedJudge, MemoryVerdictStore
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.questions import JudgeFailed
from ragmeter.scorers.llm.served_model import PAUSE

from tests.scorers.judge.asking import Asked, Reply, completion, question, script
from tests.scorers.judge.stub_judge import StubJudge
from tests.tables import each_row
from tests.waiting import until_async


def cached(
    asked: Asked,
    store: MemoryVerdictStore | None = None,
    count: Callable[[str], None] = lambda source: None,
) -> CachedJudge:
    store = store if store is not None else MemoryVerdictStore(100)
    return CachedJudge(asked.client, store, clock=asked.clock, count=count)


def test_a_repeated_question_costs_no_call() -> None:
    asked = Asked(script(completion()))
    sources: list[str] = []
    judge = cached(asked, count=sources.append)

    async def main() -> None:
        cost = ScoringCost()
        first = await judge.ask(question(), cost)
        again = await judge.ask(question(), cost)
        assert (first.value, first.cached) == (2, False)
        assert (again.value, again.cached) == (2, True)
        assert again.fingerprint == first.fingerprint
        assert cost.requests == len(asked.bodies) == 1
        assert sources == ["asked", "kept"]

    asyncio.run(main())


@each_row(
    "change",
    [
        {"user": "Another?"},
        {"system": "You grade strictly."},
        {"prompt_hash": "hash-2"},
        {"schema": {"type": "object"}},
        {"system": "You grade.H", "user": "ow relevant is it?"},
    ],
)
def test_another_question_is_another_call(change: dict[str, Any]) -> None:
    asked = Asked(script(completion()))
    judge = cached(asked)

    async def main() -> None:
        await judge.ask(question(), ScoringCost())
        assert not (await judge.ask(question(**change), ScoringCost())).cached

    asyncio.run(main())


def test_verdicts_of_another_instrument_do_not_count() -> None:
    async def main() -> None:
        store = MemoryVerdictStore(100)
        base: dict[str, Any] = {"base_url": "http://judge.test/v1", "model": "asked-1"}
        for settings in (
            base,
            {**base, "model": "asked-2"},
            {**base, "temperature": 1},
            {**base, "structured": "prompt"},
            {**base, "base_url": "http://other.test/v1"},
        ):
            asked = Asked(script(completion()), **settings)
            judge = cached(asked, store)
            await judge.ask(question("first"), ScoringCost())  # now it is known who serves
            assert not (await judge.ask(question(), ScoringCost())).cached
            assert (await judge.ask(question(), ScoringCost())).cached

    asyncio.run(main())


def test_a_new_model_makes_old_verdicts_misses_and_the_old_one_finds_them_again() -> None:
    model = "served-1"

    def serve(_: dict[str, Any], __: httpx.Request) -> Reply:
        return completion(model=model)

    asked = Asked(serve)
    judge = cached(asked)

    async def main() -> None:
        nonlocal model
        first = await judge.ask(question("a"), ScoringCost())
        model = "served-2"
        assert (
            await judge.ask(question("a"), ScoringCost())
        ).cached  # nothing has shown the change yet
        await judge.ask(question("b"), ScoringCost())
        second = await judge.ask(question("a"), ScoringCost())
        assert not second.cached
        assert second.fingerprint != first.fingerprint
        model = "served-1"
        await judge.ask(question("c"), ScoringCost())
        assert (await judge.ask(question("b"), ScoringCost())).cached  # they may answer in turn
        for number in range(22):  # no: the new one is absent
            asked.clock.now += PAUSE
            await judge.ask(question(f"d{number}"), ScoringCost())
        third = await judge.ask(question("a"), ScoringCost())
        assert third.cached
        assert third.fingerprint == first.fingerprint

    asyncio.run(main())


def test_verdicts_are_found_after_a_restart() -> None:
    store = MemoryVerdictStore(100)
    before = Asked(script(completion()))

    async def main() -> None:
        await cached(before, store).ask(question(), ScoringCost())
        after = Asked(script(completion()), state=before.client.state())
        assert (await cached(after, store).ask(question(), ScoringCost())).cached
        assert after.bodies == []

    asyncio.run(main())


def test_failures_are_not_kept() -> None:
    asked = Asked(script(400, completion()), structured="schema")
    judge = cached(asked)

    async def main() -> None:
        with pytest.raises(JudgeFailed):
            await judge.ask(question(), ScoringCost())
        assert (await judge.ask(question(), ScoringCost())).value == 2

    asyncio.run(main())


def test_a_verdict_that_no_longer_reads_is_a_miss() -> None:
    asked = Asked(script(completion()))

    class Damaged(MemoryVerdictStore):
        body = b"{"

        def get(self, key: bytes) -> tuple[str, bytes] | None:  # type: ignore[override]
            return ("f", self.body) if super().get(key) else None

    store = Damaged(100)
    judge = cached(asked, store)

    async def main() -> None:
        await judge.ask(question(), ScoringCost())
        for body in (b"{", b"\xff", b"[]", b'{"other": 1}', b'{"grade": "x"}', b"[" * 99_999):
            store.body = body
            assert not (await judge.ask(question(), ScoringCost())).cached
        store.body = b'{"grade": 1}'
        assert (await judge.ask(question(), ScoringCost())).value == 1

    asyncio.run(main())


def test_equal_questions_at_once_are_one_call_and_each_reads_for_itself() -> None:
    async def main() -> None:
        async with StubJudge(latency=0.05) as stub:
            client = JudgeClient(JudgeSettings(base_url=stub.base_url, model="asked-1"))
            sources: list[str] = []
            judge = CachedJudge(client, MemoryVerdictStore(100), count=sources.append)
            same = question(read=lambda data: [data["grade"]])
            cost = ScoringCost()
            verdicts = await asyncio.gather(*(judge.ask(same, cost) for _ in range(10)))
            assert stub.calls == cost.requests == 1
            assert (cost.uses["judge"].calls, cost.uses["judge"].cached) == (1, 9)
            assert [verdict.cached for verdict in verdicts] == [False] + [True] * 9
            assert len({id(verdict.value) for verdict in verdicts}) == 10
            assert sorted(sources) == ["asked"] + ["shared"] * 9
            await client.aclose()

    asyncio.run(main())


def test_a_trace_that_is_given_up_does_not_take_the_call_of_another() -> None:
    async def main() -> None:
        async with StubJudge(latency=1) as stub:
            client = JudgeClient(JudgeSettings(base_url=stub.base_url, model="asked-1"))
            judge = CachedJudge(client, MemoryVerdictStore(100))
            first = asyncio.create_task(judge.ask(question(), ScoringCost()))
            cost = ScoringCost()
            second = asyncio.create_task(judge.ask(question(), cost))
            await until_async(lambda: stub.in_flight == 1)
            first.cancel()
            verdict = await second
            assert verdict.value in range(4)
            assert stub.calls == cost.requests == 1
            await client.aclose()

    asyncio.run(main())


def test_lone_surrogates_can_be_kept() -> None:
    asked = Asked(script(completion('{"grade": 2, "why": "\\ud800"}')))
    judge = cached(asked)
    same = question("\ud800", schema={"type": "object"}, read=lambda data: data["why"])

    async def main() -> None:
        assert str((await judge.ask(same, ScoringCost())).value) == "\ud800"
        assert (await judge.ask(same, ScoringCost())).cached

    asyncio.run(main())


def test_a_memory_is_bounded_in_number() -> None:
    store = MemoryVerdictStore(3)
    for number in range(5):
        store.put(b"%d" % number, "f", b"{}", 0.0)
    assert list(store) == [b"2", b"3", b"4"]
    store.put(b"2", "g", b"[]", 0.0)  # written anew: the youngest now
    store.put(b"5", "f", b"{}", 0.0)
    assert store.get(b"2") == ("g", b"[]")
    assert store.get(b"3") is None


def test_a_memory_of_no_entries_keeps_none() -> None:
    store = MemoryVerdictStore(0)
    store.put(b"k", "f", b"{}", 0.0)
    assert len(store) == 0
