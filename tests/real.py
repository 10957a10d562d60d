"""Finding the real outside parts that tests marked `real` run against."""

from __future__ import annotations

import os
import shutil

import pytest

__all__ = ["require"]


def require(*names: str) -> str:
    """The path of the first program found under one of its names (distributions rename some).

    Without one the test is skipped, saying why; where CI=true it fails, so that a runner that
    lost the program does not pass by testing nothing.
    """
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    reason = f"needs one of these programs on the PATH: {', '.join(names)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
