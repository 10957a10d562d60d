"""What tests of users' own metrics install is taken back."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from ragmeter.metrics.custom import CUSTOM_METRICS
from ragmeter.metrics.registry import METRICS


@pytest.fixture
def registry() -> Iterator[None]:
    """Takes back what a test installs, and what it imports."""
    before, mine = dict(METRICS), list(CUSTOM_METRICS)
    yield
    METRICS.clear()
    METRICS.update(before)
    CUSTOM_METRICS[:] = mine
    sys.modules.pop("mine", None)
