"""How many cores a process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from ragmeter.core.process import usable_cores


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, math.inf),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000"}, math.inf),
        (
            {
                "proc/self/cgroup": "0::/kubepods/pod1/c1\n",
                "sys/fs/cgroup/kubepods/pod1/cpu.max": "25000 100000",
                "sys/fs/cgroup/kubepods/pod1/c1/cpu.max": "max 100000",
            },
            0.25,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/host/name\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            },
            math.inf,
        ),
    ],
)
def test_quotas_of_both_versions_of_control_groups_are_respected(
    tmp_path: Path, files: dict[str, str], cores: float
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    own = len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path) == min(own, cores)
