"""Heartbeats, jobs, the stall watchdog, signal handling and resource limits of a process.

The watchdog notices work that waits while nothing moves: the embedded agent shows it its threads
and its queue, a Kafka worker its partitions. A restart is harmless by design: readiness goes off
first, so that operators can look, and then the process ends with a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
)
from pathlib import Path
from typing import Any, Generic, TypeVar

from ragmeter.core.report_pace import ReportPace

_HEARTBEAT_SECONDS = 2.0  # of an event loop; a stall is a matter of many seconds

# Share of `limits.stalled_seconds` after which readiness goes off: 30 s of 120. That is longer
# than the longest sound pause of the embedded agent (5 s between two tries to write), and leaves
# time to look.
_UNREADY_SHARE = 0.25

# Most seconds that one update may add. A longer gap between updates means that the whole process
# stood still (stopped, or its machine frozen), so nothing in it could have moved.
MAX_CHECK_SECONDS = 10.0

# New objects between two collections of the youngest generation. Traces come in hundreds and hold
# no cycles: at Python's 700 the collector took a tenth of the time of an import and freed nothing.
_GC_THRESHOLD = 50_000

_RESTART_SECONDS = 10.0  # before a job that failed begins again
_END_SECONDS = 5.0  # for connections to be closed, which may wait for a broker that is down

# More than the 2 s within which a connection is closed: a second cancellation interrupts that.
_CANCEL_AGAIN_SECONDS = 3.0

log = logging.getLogger(__name__)

_WatchedKey = TypeVar("_WatchedKey", bound=Hashable)


def collect_rarely() -> None:
    """Let the garbage collector leave alone what exists by now, and run rarely.

    Call it at the end of a start, during which the collector is off (`ragmeter.cli.start`).
    """
    gc.freeze()  # modules and settings stay: no collection visits them again
    gc.set_threshold(_GC_THRESHOLD)
    gc.enable()


Job = Callable[[], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def run_jobs(
    jobs: Iterable[Job],
    pause: float = _RESTART_SECONDS,
    end: float = _END_SECONDS,
    *,
    passing: tuple[type[Exception], ...] = (OSError, TimeoutError),
    explain: Callable[[Exception], str] = repr,
) -> AsyncIterator[None]:
    """Run jobs until the end of the block; one that fails restarts after `pause` seconds.

    Cancelled jobs get `end` seconds to end. Errors that are `passing` are logged in one line, in
    the words of `explain`, and the same words again after a minute, whichever job has them.
    """
    pace = ReportPace()

    async def repeat(job: Job) -> None:
        while True:
            try:
                await job()
                return
            except Exception as error:
                told = explain(error)
                if not isinstance(error, passing):
                    log.exception("a job restarts in %.0f s: %s", pause, told)
                elif pace.is_due(told):
                    log.warning("a job restarts in %.0f s: %s", pause, told)
            await asyncio.sleep(pause)

    tasks = [asyncio.create_task(repeat(job)) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=end)


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and return when all have ended, whatever they raise.

    A task that goes on is cancelled again: what it awaits may have swallowed the cancellation, as
    aiokafka's producers do when they are closed.
    """
    remaining = set(tasks)
    while remaining:
        for task in remaining:
            task.cancel()
        ended, remaining = await asyncio.wait(remaining, timeout=_CANCEL_AGAIN_SECONDS)
        for task in ended:
            if not task.cancelled():
                task.exception()  # else asyncio logs that nobody has looked at it


def end_if_cancelled() -> None:
    """Go no further in a task that was cancelled, though what it awaited swallowed that.

    aiokafka's clients do so when they are closed. Whoever waits for the end of the task, as
    `asyncio.run` does of all tasks that are left, would wait for ever.

    Raises:
        asyncio.CancelledError: The current task was cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Heartbeat:
    """A counter that one thread increases and any thread may read."""

    def __init__(self) -> None:
        self.count = 0

    def beat(self) -> None:
        """Show that the thread is alive."""
        self.count += 1

    async def run(self) -> None:
        """Beat for ever in an event loop; the beats stop while something blocks the loop."""
        while True:
            self.beat()
            await asyncio.sleep(_HEARTBEAT_SECONDS)


class Watchdog(Generic[_WatchedKey]):
    """Measures for how long each watched part has not moved; call `update` about every second.

    Usually one part stands still while others go on, so each is watched by itself.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last = monotonic()
        self._watched = 0.0  # seconds between updates, each bounded by `MAX_CHECK_SECONDS`
        self._common: object = None
        self._since: dict[_WatchedKey, tuple[object, float]] = {}

    def update(
        self, marks: Mapping[_WatchedKey, object | None], common: object = None
    ) -> dict[_WatchedKey, float]:
        """Take the current marks; return for how many seconds each part with work stood still.

        The longest is the first.

        Args:
            marks: By part, any value that changes when it moves; None where nothing waits.
            common: Any value that changes when all of them have a reason to wait.
        """
        time = self._monotonic()
        self._watched += min(time - self._last, MAX_CHECK_SECONDS)
        self._last = time
        now = self._watched
        if common != self._common:
            self._common = common
            self._since = {}
        since: dict[_WatchedKey, tuple[object, float]] = {}
        for key, mark in marks.items():
            if mark is not None:
                before = self._since.get(key)
                since[key] = before if before is not None and before[0] == mark else (mark, now)
        self._since = since
        stalled = {key: now - at for key, (_, at) in since.items()}
        return dict(sorted(stalled.items(), key=lambda item: -item[1]))


def is_unready(stalled: float, limit: float) -> bool:
    """Return whether readiness is off; `limit` is `limits.stalled_seconds`."""
    return stalled > limit * _UNREADY_SHARE


class SignalHandlers:
    """Signal handlers of the running event loop.

    SIGINT and SIGTERM set `stop`; a second one ends the process at once. SIGHUP calls `reload`.

    Args:
        reload: None as long as nothing is running that could be reloaded.
    """

    def __init__(self, reload: Callable[[], None] | None = None) -> None:
        self.stop = asyncio.Event()
        self.reload = reload
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)

    def _reload(self) -> None:
        if self.reload is not None:
            self.reload()

    def _stop(self, number: signal.Signals) -> None:
        if self.stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.stop.set()


def usable_cores(root: Path = Path("/")) -> float:
    """Return how many cores this process may use, by its affinity and its control groups' quotas.

    Args:
        root: Where `proc` and `sys` are.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    for group in _control_groups(root):
        quota, _, period = _group_value(group / "cpu.max").partition(" ")
        if not quota:  # version 1 of control groups
            quota = _group_value(group / "cpu.cfs_quota_us")
            period = _group_value(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():  # neither `max` nor -1
            cores = min(cores, int(quota) / int(period))
    return cores


def _control_groups(root: Path) -> Iterator[Path]:
    """Yield the folders of the control groups that this process is in, of both versions."""
    for line in _group_value(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        for controller in controllers.split(","):
            mount = root / "sys/fs/cgroup" / controller
            group = mount / name.lstrip("/")
            # in a container the mount shows the own group, and the name is the host's
            yield from {group, *group.parents} - set(mount.parents)


def _group_value(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
