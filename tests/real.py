"""Finding the real outside parts that tests marked `real` run against."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

__all__ = ["require", "unavailable"]


def require(*names: str) -> str:
    """The path of the first program found under one of its names (distributions rename some)."""
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    return unavailable(f"needs one of these programs on the PATH: {', '.join(names)}")


def unavailable(reason: str) -> NoReturn:
    """The test is skipped, saying why; where CI=true it fails, so that a runner that lost an
    outside part does not pass by testing nothing."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
