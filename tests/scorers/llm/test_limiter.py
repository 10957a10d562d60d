from __future__ import annotations

import asyncio
import random

import pytest
from ragmeter.scorers.llm.admission import ConcurrencyLimiter, LatencyRise, Slot


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_never_more_than_the_ceiling_in_flight() -> None:
    async def main() -> int:
        limiter = ConcurrencyLimiter(3)
        most = 0

        async def work() -> None:
            nonlocal most
            slot = await limiter.acquire()
            most = max(most, limiter.in_flight)
            await asyncio.sleep(0)
            limiter.succeeded(slot)
            limiter.release()

        await asyncio.gather(*(work() for _ in range(50)))
        assert limiter.in_flight == 0
        return most

    assert asyncio.run(main()) == 3


def test_waiters_are_served_in_order() -> None:
    async def main() -> list[int]:
        limiter = ConcurrencyLimiter(1)
        order = []
        await limiter.acquire()

        async def work(number: int) -> None:
            await limiter.acquire()
            order.append(number)
            limiter.release()

        tasks = [asyncio.create_task(work(number)) for number in range(10)]
        await settle()
        limiter.release()
        late = asyncio.create_task(work(10))
        await asyncio.gather(*tasks, late)
        return order

    assert asyncio.run(main()) == list(range(11))


def test_the_oldest_trace_goes_first() -> None:
    async def main() -> list[float]:
        limiter = ConcurrencyLimiter(1)
        order = []
        await limiter.acquire()

        async def work(begun: float) -> None:
            await limiter.acquire(begun)
            order.append(begun)
            limiter.release()

        tasks = [asyncio.create_task(work(begun)) for begun in (3, 1, 2, 1.5)]
        await settle()
        tasks[1].cancel()
        await settle()
        limiter.release()
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    assert asyncio.run(main()) == [1.5, 2, 3]


def test_an_overload_halves_once_a_round_and_never_below_1() -> None:
    async def main() -> list[int]:
        limiter = ConcurrencyLimiter(16)
        slots = [await limiter.acquire() for _ in range(16)]
        sizes = []
        for slot in slots:  # all of one round
            limiter.overloaded(slot)
            sizes.append(limiter.size)
            limiter.release()
        assert set(sizes) == {8}
        sizes = []
        for _ in range(6):
            limiter.overloaded(await limiter.acquire())
            sizes.append(limiter.size)
            limiter.release()
        return sizes

    assert asyncio.run(main()) == [4, 2, 1, 1, 1, 1]


def test_a_round_of_successes_adds_a_quarter_but_near_the_size_that_failed() -> None:
    async def main() -> None:
        limiter = ConcurrencyLimiter(40)
        limiter.overloaded(await limiter.acquire())
        limiter.release()
        assert limiter.size == 8  # 16 failed

        async def successes(count: int) -> int:
            for _ in range(count):
                while limiter.in_flight < limiter.size:
                    await limiter.acquire()
                limiter.succeeded(Slot(1, 1))
            return limiter.size

        assert [await successes(8) for _ in range(2)] == [10, 12]
        assert [await successes(12) for _ in range(9)] == 9 * [12]  # a tenth a round
        assert await successes(400) == 15
        assert await successes(300) == 40

    asyncio.run(main())


def test_a_kind_that_is_first_seen_under_load_is_compared_with_what_it_would_have_taken() -> None:
    rise = LatencyRise()
    rise.add("grade", 1.0, quiet=True)
    rise.add("grade", 2.0, quiet=False)
    assert rise.close_round() == pytest.approx(2)
    rise.add("nuggets", 10.0, quiet=False)
    assert rise.samples == 0
    rise.add("nuggets", 10.0, quiet=False)
    assert rise.close_round() == pytest.approx(2)


def test_capacity_is_planned_by_what_failed_last_until_more_has_gone_well() -> None:
    async def main() -> None:
        limiter = ConcurrencyLimiter(32)
        assert limiter.capacity_share == 1.0  # it is to look for more
        limiter.overloaded(await limiter.acquire())
        assert limiter.capacity_share == 0.5

    asyncio.run(main())


def test_successes_of_an_idle_limiter_add_nothing() -> None:
    async def main() -> None:
        limiter = ConcurrencyLimiter(16)
        limiter.overloaded(await limiter.acquire())
        for _ in range(100):
            limiter.succeeded(Slot(1, 1))
        assert limiter.size == 8

    asyncio.run(main())


def test_a_smaller_limit_holds_new_attempts_back() -> None:
    async def main() -> None:
        limiter = ConcurrencyLimiter(4)
        slots = [await limiter.acquire() for _ in range(4)]
        limiter.overloaded(slots[0])
        waiting = asyncio.create_task(limiter.acquire())
        limiter.release()
        limiter.release()
        await settle()
        assert not waiting.done()  # 2 in flight, 2 allowed
        limiter.release()
        await waiting
        assert limiter.in_flight == 2

    asyncio.run(main())


def test_waiters_that_are_cancelled_take_and_lose_no_slot() -> None:
    async def main() -> None:
        rng = random.Random(1)
        limiter = ConcurrencyLimiter(2)

        async def work() -> None:
            await limiter.acquire()
            try:
                await asyncio.sleep(0)
            finally:
                limiter.release()

        for _ in range(300):
            tasks = [asyncio.create_task(work()) for _ in range(8)]
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)
                rng.choice(tasks).cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert limiter.in_flight == 0
            assert limiter.waiting == 0

    asyncio.run(main())


def test_one_who_is_cancelled_with_the_slot_in_hand_passes_it_on() -> None:
    async def main() -> None:
        limiter = ConcurrencyLimiter(1)
        await limiter.acquire()
        first = asyncio.create_task(limiter.acquire())
        second = asyncio.create_task(limiter.acquire())
        await settle()
        limiter.release()  # gives it to the first, which has not run yet
        first.cancel()
        await second
        with pytest.raises(asyncio.CancelledError):
            await first
        assert limiter.in_flight == 1

    asyncio.run(main())
