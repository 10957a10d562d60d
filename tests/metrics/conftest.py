"""What tests of users' own metrics install is taken back."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from agent.metrics import METRICS
from agent.metrics.own import INSTALLED


@pytest.fixture
def registry() -> Iterator[None]:
    """Takes back what a test installs, and what it imports."""
    before, mine = dict(METRICS), list(INSTALLED)
    yield
    METRICS.clear()
    METRICS.update(before)
    INSTALLED[:] = mine
    sys.modules.pop("mine", None)
