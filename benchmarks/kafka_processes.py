"""Processes of the benchmark on a real Kafka: what they use of a processor, and a bound on it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

__all__ = ["cpu_seconds", "limited"]

TICK = os.sysconf("SC_CLK_TCK")
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 20_000  # short beside a batch and a heartbeat


def _family(pid: int) -> Iterator[int]:
    yield pid
    for tasks in Path(f"/proc/{pid}").glob("task/*/children"):
        for child in tasks.read_text().split():
            yield from _family(int(child))


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the processor time so far of processes with their children, in seconds."""
    total = 0
    for process in (one for pid in pids for one in _family(pid)):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


@contextmanager
def _limited(pid: int, cores: float) -> Iterator[None]:
    group = CPU_GROUPS / f"ragmeter-{pid}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(cores * PERIOD_US)))
        for one in _family(pid):
            (group / "cgroup.procs").write_text(str(one))
        yield
    finally:
        for process in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):  # it has just ended
                (CPU_GROUPS / "cgroup.procs").write_text(process)
        group.rmdir()


@contextmanager
def limited(pids: Sequence[int], cores: float) -> Iterator[None]:
    """Give each process with its children at most `cores` of a core in every 20 ms.

    Each gets a control group (version 1) of its own, which needs the rights of root.
    """
    with ExitStack() as stack:
        for pid in pids:
            stack.enter_context(_limited(pid, cores))
        yield
