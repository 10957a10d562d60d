"""Finding the real outside parts that tests marked `real` run against."""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest

__all__ = ["PACKAGES", "require", "require_memory", "require_module", "unavailable"]

# Debian's packages of the programs that tests ask for.
PACKAGES = {
    "alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
    "chromedriver": "chromium-driver",
    "chromium": "chromium",
    "curl": "curl",
    "java": "default-jre-headless",
    "mvn": "maven",
    "openssl": "openssl",
    "prometheus": "prometheus",
    "promtool": "prometheus",
}


def require(*names: str) -> str:
    """The path of the first program found under one of its names (distributions rename some).
    Debian's package is that of the first name."""
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    needed = f"needs {' or '.join(names)} on the PATH"
    return unavailable(f"{needed}: apt install {PACKAGES[names[0]]}")


def require_module(name: str) -> Any:
    """A module of what `make setup` installs for the extras and the tests."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        unavailable(f"needs the Python package {error.name}: make setup")


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
    pytest.skip(reason, allow_module_level=True)
