"""Finding the real outside parts that tests marked `real` run against."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = ["require", "require_memory", "unavailable"]


def require(*names: str) -> str:
    """The path of the first program found under one of its names (distributions rename some)."""
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    return unavailable(f"needs one of these programs on the PATH: {', '.join(names)}")


def require_memory(gigabytes: float) -> None:
    """That so much is free."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return  # not Linux: nobody says
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) / 2**20
    if free < gigabytes:
        unavailable(f"needs {gigabytes:g} GB of memory; {free:.1f} GB are free")


def unavailable(reason: str) -> NoReturn:
    """The test is skipped, saying why; where CI=true it fails, so that a runner that lost an
    outside part does not pass by testing nothing."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
