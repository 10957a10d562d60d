"""The chart's requests and limits follow what was measured (docs/performance.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ragmeter.core.files import parse_yaml

ROOT = Path(__file__).parents[2]
VALUES = parse_yaml((ROOT / "helm/ragmeter/values.yaml").read_bytes())
UNITS = {"Mi": 1.0, "Gi": 1024.0}

HEADROOM = 1.25
"""Of memory that is asked for, over what was resident: the windows of a day fill it further."""
BURSTS, CATCHING_UP = 4.0, 3.0
"""Of the limits on memory and CPU: a request of `limits.body_bytes` (20 MiB) is some ten times that
while it is read; what waited is worked off."""


def measured() -> dict[str, tuple[float, float]]:
    """Thousandths of a core and MiB at most, by what the agent did."""
    text = (ROOT / "docs/performance.md").read_text("utf-8")
    rows = re.search(r"<!-- resources: begin -->(.*?)<!-- resources: end -->", text, re.S)
    assert rows is not None
    found = {}
    for row in rows[1].strip().splitlines()[2:]:
        what, cpu, _, most = (cell.strip() for cell in row.strip("|").split("|"))
        found[what] = (float(cpu), float(most))
    return found


def cores(text: str) -> float:
    """In thousandths."""
    return float(text[:-1]) if text.endswith("m") else 1000 * float(text)


def mebibytes(text: str) -> float:
    return float(text[:-2]) * UNITS[text[-2:]]


def test_it_was_measured_at_rest_and_at_work_in_every_mode() -> None:
    found = measured()
    assert {"at rest", "100 traces/s, cheap tier", "100 traces/s, built-in scorers"} <= set(found)
    assert any(what.startswith("worker") for what in found)
    assert found["at rest"][0] < min(cpu for what, (cpu, _) in found.items() if what != "at rest")


@pytest.mark.parametrize("what", measured())
def test_requests_hold_what_was_measured_and_limits_leave_room(what: str) -> None:
    cpu, memory = measured()[what]
    requests, limits = VALUES["resources"]["requests"], VALUES["resources"]["limits"]
    assert cores(requests["cpu"]) >= cpu
    assert mebibytes(requests["memory"]) >= HEADROOM * memory
    assert cores(limits["cpu"]) >= CATCHING_UP * cpu
    assert mebibytes(limits["memory"]) >= BURSTS * memory


def test_requests_ask_for_no_more_than_twice_what_is_needed() -> None:
    cpu = max(cpu for cpu, _ in measured().values())
    memory = max(memory for _, memory in measured().values())
    assert cores(VALUES["resources"]["requests"]["cpu"]) <= 2 * cpu
    assert mebibytes(VALUES["resources"]["requests"]["memory"]) <= 2 * memory
