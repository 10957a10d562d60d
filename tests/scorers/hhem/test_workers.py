"""Order, fairness, errors and ends of the workers."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.hhem.workers import AGEING, NICENESS, CpuTask, CpuWorkers, WorkersClosed

from tests.waiting import PATIENCE


class Bench:
    """One worker that is kept busy until `open`, and what it did after that, in order."""

    def __init__(self, **options: object) -> None:
        self.now = 0.0
        self.workers = CpuWorkers(1, clock=lambda: self.now, **options)  # type: ignore[arg-type]
        self.done: list[str] = []
        self._gate = threading.Event()
        self.begun = threading.Event()

    def _hold(self) -> None:
        self.begun.set()
        assert self._gate.wait(PATIENCE)

    def task(self, name: str, weight: float) -> CpuTask[str]:
        def call() -> str:
            self.done.append(name)
            return name.upper()

        return CpuTask(weight, call)

    async def trace(self, *tasks: CpuTask[str], cost: ScoringCost | None = None) -> list[str]:
        async with self.workers.turn() as turn:
            return await turn.run(tasks, cost or ScoringCost())

    async def start(self, *tasks: CpuTask[str], at: float = 0.0) -> asyncio.Task[list[str]]:
        """Begin a trace at that time of the clock, and let it come to its waiting."""
        self.now = at
        begun = asyncio.create_task(self.trace(*tasks))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return begun

    async def block(self) -> asyncio.Task[None]:
        async def hold() -> None:
            async with self.workers.turn() as turn:
                await turn.run([CpuTask(0, self._hold)], ScoringCost())

        blocked = asyncio.create_task(hold())
        await asyncio.to_thread(self.begun.wait, 30)
        return blocked

    def open(self) -> None:
        self._gate.set()


def run(story: Callable[[Bench], Awaitable[None]], **options: object) -> None:
    async def main() -> None:
        bench = Bench(**options)
        try:
            await story(bench)
        finally:
            bench.open()
            await bench.workers.close()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_results_come_in_the_order_of_the_tasks() -> None:
    async def story(bench: Bench) -> None:
        bench.open()
        found = await bench.trace(bench.task("a", 3), bench.task("b", 1), bench.task("c", 2))
        assert found == ["A", "B", "C"]
        assert bench.done == ["b", "c", "a"]
        assert await bench.trace() == []

    run(story)


def test_the_shortest_trace_goes_first_and_its_lightest_task() -> None:
    async def story(bench: Bench) -> None:
        await bench.block()
        traces = [
            await bench.start(bench.task("long-2", 400), bench.task("long-1", 300)),
            await bench.start(bench.task("middle", 200)),
            await bench.start(*(bench.task(f"short-{n}", n) for n in (3, 1, 2))),
        ]
        bench.open()
        await asyncio.gather(*traces)
        assert bench.done == ["short-1", "short-2", "short-3", "middle", "long-1", "long-2"]

    run(story)


def test_what_is_left_of_a_trace_counts_not_what_it_was() -> None:
    async def story(bench: Bench) -> None:
        await bench.block()
        first = await bench.start(*(bench.task(f"first-{n}", 100) for n in range(4)))
        second = await bench.start(bench.task("second-1", 250), bench.task("second-2", 250))
        bench.open()
        await asyncio.gather(first, second)
        assert [name[:5] for name in bench.done] == ["first"] * 4 + ["secon"] * 2

    run(story)


@pytest.mark.parametrize(("later", "order"), [(0.9, ["short", "long"]), (1.1, ["long", "short"])])
def test_waiting_makes_up_for_length(later: float, order: list[str]) -> None:
    async def story(bench: Bench) -> None:
        await bench.block()
        long = await bench.start(bench.task("long", AGEING + 100))
        short = await bench.start(bench.task("short", 100), at=later)
        bench.open()
        await asyncio.gather(long, short)
        assert bench.done == order

    run(story)


def test_a_stream_of_short_traces_does_not_starve_a_long_one() -> None:
    async def story(bench: Bench) -> None:
        await bench.block()
        long = await bench.start(*(bench.task("long", 500) for _ in range(4)))
        stream = [await bench.start(bench.task(f"{n}", 10), at=n / 10) for n in range(60)]
        bench.open()
        await asyncio.gather(long, *stream)
        # weight 2,000: behind those of its first 4 s, which are 40, and before all others
        places = [at for at, name in enumerate(bench.done) if name == "long"]
        assert places == [40, 41, 42, 43]

    run(story)


def test_the_loop_goes_on_while_a_worker_works() -> None:
    async def story(bench: Bench) -> None:
        blocked = await bench.block()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not blocked.done()
        bench.open()
        await blocked

    run(story)


def test_no_more_traces_are_admitted_than_may_be_held() -> None:
    async def story(bench: Bench) -> None:
        async with bench.workers.turn(), bench.workers.turn():
            third = asyncio.create_task(bench.trace(bench.task("third", 1)))
            await asyncio.sleep(0.01)
            assert not third.done()
        assert await third == ["THIRD"]

    run(story, admitted=2)


def test_a_cancelled_trace_leaves_nothing_behind() -> None:
    async def story(bench: Bench) -> None:
        await bench.block()
        dropped = await bench.start(*(bench.task("dropped", 1) for _ in range(50)))
        other = await bench.start(bench.task("other", 500))
        dropped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dropped
        bench.open()
        assert await other == ["OTHER"]
        assert bench.done == ["other"]

    run(story)


def test_an_error_ends_its_own_trace_only_and_drops_what_is_left_of_it() -> None:
    def fail() -> str:
        raise ZeroDivisionError

    async def story(bench: Bench) -> None:
        await bench.block()
        bad = await bench.start(CpuTask(1, fail), *(bench.task("bad", 2) for _ in range(9)))
        good = await bench.start(bench.task("good", 500))
        bench.open()
        time.sleep(0.1)  # noqa: ASYNC251 - a busy loop hears of it late, and does nothing meanwhile
        with pytest.raises(ZeroDivisionError):
            await bad
        assert await good == ["GOOD"]
        assert bench.done == ["good"]

    run(story)


def test_busy_seconds_are_counted_of_a_failed_run_too() -> None:
    ticks = iter(range(100))

    def fail() -> str:
        raise ZeroDivisionError

    async def story(bench: Bench) -> None:
        bench.open()
        cost = ScoringCost()
        await bench.trace(bench.task("a", 1), bench.task("b", 2), cost=cost)
        assert cost == ScoringCost(seconds=2.0)
        with pytest.raises(ZeroDivisionError):
            await bench.trace(CpuTask(1, fail), cost=cost)
        assert cost == ScoringCost(seconds=3.0)

    run(story, timer=lambda: float(next(ticks)))


def test_a_task_costs_its_cpu_time_or_the_share_of_the_time_for_which_it_held_its_worker() -> None:
    held, cpu = iter([0.0, 4.0, 10.0, 30.0]), iter([0.0, 1.0, 1.0, 2.0])

    async def story(bench: Bench) -> None:
        bench.open()
        cost = ScoringCost()
        await bench.trace(bench.task("other programs took three seconds", 1), cost=cost)
        assert cost == ScoringCost(seconds=1.0)
        await bench.trace(bench.task("they took 19, and the worker is what limits", 1), cost=cost)
        assert cost == ScoringCost(seconds=5.0)

    run(story, share=0.2, timer=lambda: next(held), cpu_timer=lambda: next(cpu))


def test_a_worker_that_gets_no_core_is_busy_all_the_same() -> None:
    async def main() -> None:
        workers = CpuWorkers(1)
        cost = ScoringCost()
        async with workers.turn() as turn:
            await turn.run([CpuTask(1, lambda: time.sleep(0.2))], cost)
        await workers.close()
        assert cost.seconds >= 0.2

    asyncio.run(main())


def test_closing_waits_for_the_task_in_hand_and_ends_the_threads() -> None:
    async def main() -> None:
        bench = Bench()
        blocked = await bench.block()
        waiting = await bench.start(bench.task("never", 1))
        closing = asyncio.create_task(bench.workers.close())
        with pytest.raises(WorkersClosed):
            await waiting
        with pytest.raises(WorkersClosed):
            await blocked  # its task goes on, but its trace would not get further
        assert not closing.done()
        bench.open()
        await closing
        assert bench.done == []
        assert not [t for t in threading.enumerate() if t.name.startswith("ragmeter-model")]
        with pytest.raises(WorkersClosed):
            await bench.trace(bench.task("late", 1))

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_no_thread_begins_before_there_is_work() -> None:
    async def main() -> None:
        workers = CpuWorkers(3)
        assert not [t for t in threading.enumerate() if t.name.startswith("ragmeter-model")]
        await workers.close()

    asyncio.run(main())


def test_several_workers_lose_and_mix_up_nothing() -> None:
    async def main() -> None:
        workers = CpuWorkers(4)

        async def trace(number: int) -> list[int]:
            async with workers.turn() as turn:
                first = await turn.run(
                    [CpuTask(n % 5, partial(sum, (number * 100, n))) for n in range(40)],
                    ScoringCost(),
                )
                (total,) = await turn.run([CpuTask(1, lambda: sum(first))], ScoringCost())
                return [*first, total]

        found = await asyncio.gather(*(trace(number) for number in range(100)))
        await workers.close()
        for number, values in enumerate(found):
            expected = [number * 100 + n for n in range(40)]
            assert values == [*expected, sum(expected)]

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
@pytest.mark.parametrize("lower", [0, NICENESS])
def test_workers_step_back_if_they_should_and_nobody_else_does(lower: int) -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    async def main() -> None:
        before = niceness()
        workers = CpuWorkers(1, niceness=lower)
        async with workers.turn() as turn:
            (inside,) = await turn.run([CpuTask(1, niceness)], ScoringCost())
        await workers.close()
        assert inside == min(19, before + lower)
        assert niceness() == before

    asyncio.run(main())
