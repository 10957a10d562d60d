"""CPU work off the event loop: single-threaded workers that run the shortest trace first.

A network's forward pass gains nothing from batches or from a second thread on a CPU, so each worker
runs one pair after another. Python's lock is free while ONNX Runtime computes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ragmeter.core.errors import Unavailable
from ragmeter.core.tiers import ScoringCost

T = TypeVar("T")

# Traces whose texts are held at a time; the others wait in the order they came.
MAX_ADMITTED_TRACES = 64
# Weight (tokens) that a second of waiting makes up for: about what a core scores in it.
AGEING = 500.0
# Added to that of the process beside live traffic: the application goes first. On a busy machine
# such threads hardly run, so where a person waits for them they have the priority of the others.
NICENESS = 10
# For the task in hand; one that takes longer ends with the process.
_JOIN_SECONDS = 4.0


class WorkersClosed(Unavailable, RuntimeError):
    """Work for workers that are closed."""


@dataclass(frozen=True, slots=True)
class CpuTask(Generic[T]):
    """A call to be made in a worker; `weight` is its duration in tokens of a pair."""

    weight: float
    call: Callable[[], T]


class _Job:
    """The tasks of one `AdmittedTrace.run`. The workers' lock guards its fields."""

    __slots__ = ("arrived", "busy", "done", "error", "loop", "open", "results", "waiting", "weight")

    def __init__(self, tasks: list[CpuTask[Any]], arrived: float) -> None:
        self.arrived = arrived
        self.busy = 0.0
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.error: BaseException | None = None
        self.results: list[Any] = [None] * len(tasks)
        self.open = len(tasks)
        # shortest last, where it is taken
        self.waiting = sorted(enumerate(tasks), key=lambda item: -item[1].weight)
        self.weight = sum(task.weight for task in tasks)

    @property
    def rank(self) -> float:
        return self.weight + AGEING * self.arrived

    def finish(self) -> None:
        """Wake the waiting coroutine, from any thread."""

        def finish() -> None:
            if not self.done.done():
                self.done.set_result(None)

        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(finish)


class AdmittedTrace:
    """A trace that has been admitted. All its tasks have the age of its admission."""

    def __init__(self, workers: CpuWorkers, arrived: float) -> None:
        self._workers = workers
        self._arrived = arrived

    async def run(self, tasks: Iterable[CpuTask[T]], cost: ScoringCost) -> list[T]:
        """Run tasks and return their results in order; busy seconds are added to `cost`.

        The first task that raises ends the run: its tasks that have not begun are dropped, and
        `run` raises the same. Cancellation drops them too.

        Raises:
            WorkersClosed: The workers are closed.
        """
        return await self._workers._run(list(tasks), self._arrived, cost)


class CpuWorkers:
    """Threads that begin at first use, for one event loop.

    Of all admitted traces, the next task is one of the trace with the least weight left, and of
    its tasks the lightest. A second of waiting counts as `AGEING` of weight: a trace of weight w
    that came at t waits for none that comes after t + w / `AGEING`, so a stream of short ones never
    starves it.

    Args:
        admitted: Most traces that are admitted at a time.
        niceness: How much lower than that of the process the priority of the threads is, on Linux.
        share: Share of a core that each worker is to take. A task costs the CPU time that it took,
            or this share of the time for which it held its worker, if that is more: where cores are
            so short that the worker is what limits, the budget of the tier must see it.
        clock: Seconds, for the age of traces.
        timer: Seconds, for the time for which a task holds its worker.
        cpu_timer: CPU seconds of the calling thread.
    """

    def __init__(
        self,
        count: int,
        *,
        admitted: int = MAX_ADMITTED_TRACES,
        niceness: int = 0,
        share: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        timer: Callable[[], float] = time.monotonic,
        cpu_timer: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share = share
        self._clock = clock
        self._timer = timer
        self._cpu_timer = cpu_timer
        self._admissions = asyncio.Semaphore(admitted)
        self._change = threading.Condition()
        self._jobs: list[_Job] = []  # with tasks that no worker has taken
        self._running: set[_Job] = set()  # awaited by someone
        self._closed = False
        self._count = count
        self._niceness = niceness
        self._threads: list[threading.Thread] = []

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[AdmittedTrace]:
        """Admit a trace; wait while `admitted` others are."""
        async with self._admissions:
            yield AdmittedTrace(self, self._clock())

    async def _run(self, tasks: list[CpuTask[T]], arrived: float, cost: ScoringCost) -> list[T]:
        job = _Job(tasks, arrived)
        with self._change:
            if self._closed:
                raise WorkersClosed
            self._start()
            if tasks:
                self._running.add(job)
                self._jobs.append(job)
                self._change.notify(len(tasks))
        try:
            if tasks:
                await job.done
        finally:
            with self._change:
                self._drop(job)
                self._running.discard(job)
                cost.seconds += job.busy
        if job.error is not None:
            raise job.error
        return job.results

    def _start(self) -> None:
        for number in range(len(self._threads), self._count):
            name = f"ragmeter-model-{number}"
            self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._threads[number].start()

    def _drop(self, job: _Job) -> None:
        job.waiting.clear()
        if job in self._jobs:
            self._jobs.remove(job)

    def _take(self) -> tuple[_Job, int, CpuTask[Any]] | None:
        with self._change:
            while not self._jobs:
                if self._closed:
                    return None
                self._change.wait()
            job = min(self._jobs, key=lambda job: job.rank)  # the first of equal ones
            index, task = job.waiting.pop()
            job.weight -= task.weight
            if not job.waiting:
                self._jobs.remove(job)
            return job, index, task

    def _work(self) -> None:
        _lower_priority(self._niceness)
        while (taken := self._take()) is not None:
            job, index, task = taken
            result: Any = None
            error: BaseException | None = None
            began = self._timer()
            cpu_began = self._cpu_timer()
            try:
                result = task.call()
            except BaseException as raised:
                error = raised  # whatever it is, the trace gets it and the worker lives on
            cpu = self._cpu_timer() - cpu_began
            held = self._timer() - began
            with self._change:
                job.busy += max(cpu, self._share * held)
                job.results[index] = result
                job.open -= 1
                if error is not None and job.error is None:
                    job.error = error
                    self._drop(job)
                if error is not None or not job.open:
                    job.finish()
            del taken, job, task, result, error  # an idle worker holds no text

    async def close(self) -> None:
        """End each thread after the task in hand; waiting runs raise `WorkersClosed`."""
        with self._change:
            self._closed = True
            for job in self._running:
                self._drop(job)
                job.error = job.error or WorkersClosed()
                job.finish()
            self._change.notify_all()
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            await asyncio.to_thread(thread.join, max(0.0, deadline - time.monotonic()))


def _lower_priority(niceness: int) -> None:
    """Let other work go first: on Linux each thread has a priority of its own."""
    if niceness and sys.platform == "linux":
        thread = threading.get_native_id()
        nice = os.getpriority(os.PRIO_PROCESS, thread) + niceness
        os.setpriority(os.PRIO_PROCESS, thread, min(19, nice))
