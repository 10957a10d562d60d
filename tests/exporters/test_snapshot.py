from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragmeter.aggregate.agent_view import AgentView
from ragmeter.core.series import OTHER_FINGERPRINT
from ragmeter_exporters.page import services, views
from ragmeter_exporters.page.views import details_view
from ragmeter_exporters.snapshot import segment_labels, split_segment, take_snapshot, windows_json

from tests.exporters.fakes import NAMES, as_agent_view, estimate, everything


def test_tags_become_label_names() -> None:
    tags = ["model", "prompt-version", "prompt.version", "service", "le", "2nd", "_x", "größe"]
    assert segment_labels(tags) == {
        "model": "model",
        "prompt-version": "prompt_version",
        "prompt.version": "prompt_version_2",
        "service": "tag_service",
        "le": "tag_le",
        "2nd": "tag_2nd",
        "_x": "tag__x",
        "größe": "gr__e",
    }


@given(st.lists(st.text(max_size=8), unique=True, max_size=8))
def test_label_names_are_valid_and_differ(tags: list[str]) -> None:
    names = list(segment_labels(tags).values())
    assert len(set(names)) == len(tags)
    assert all(re.fullmatch(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", name) for name in names)


def test_the_value_of_a_segment_may_hold_equals_signs() -> None:
    assert split_segment("model=a=b", ["model"]) == ("model", "a=b")
    assert split_segment("a=b=c", ["a", "a=b"]) == ("a=b", "c")


def test_a_snapshot_changes_no_more() -> None:
    agent = everything()
    snapshot = take_snapshot(as_agent_view(agent), detail=True)
    before = len(snapshot.counters), snapshot.alerts[0].state
    agent.counters.inc("more")
    agent.alert_list[0].state = "resolved"
    assert (len(snapshot.counters), snapshot.alerts[0].state) == before


class SlowLock:
    """A lock with a clock: taking it takes `wait` seconds, reading a service 4 ms."""

    def __init__(self, wait: float) -> None:
        self.now = 0.0
        self.wait = wait
        self.holds: list[int] = []

    def __enter__(self) -> None:
        self.now += self.wait
        self.holds.append(0)

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, service: str) -> str:
        self.now += 0.004
        self.holds[-1] += 1
        return service.upper()


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (0.0, [3] * 200),  # nobody else wants the lock: the writer finds it free after some 10 ms
        (0.01, [10, 20, 30, 40, 50, 60, 63, 63, 63, 63, 63, 63, 12]),
        (0.1, [63] * 9 + [33]),  # a backlog is counted: ten waits, not one for each service
    ],
)
def test_many_services_are_read_in_few_holds_of_the_lock(
    wait: float, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = SlowLock(wait)
    monkeypatch.setattr(views, "time", SimpleNamespace(monotonic=lambda: lock.now))
    names = [f"bot{number}" for number in range(600)]
    agent = cast(AgentView, SimpleNamespace(lock=lambda: lock))
    assert views.read_each(agent, names, lock.read) == [name.upper() for name in names]
    assert lock.holds == expected


def count_holds(services: int, read: Callable[[AgentView], object]) -> int:
    agent = everything()
    agent.part_kinds = ()  # each takes the lock for its own fragment, of all services at once
    for key, value in list(agent.fake.table.items()):
        agent.fake.table |= {(f"bot{n}", *key[1:]): value for n in range(services)}
    holds = 0

    @contextmanager
    def lock() -> Iterator[None]:
        nonlocal holds
        holds += 1
        with agent.mutex:
            yield

    agent.lock = lock  # type: ignore[method-assign]
    read(as_agent_view(agent))
    return holds


@pytest.mark.parametrize("read", [take_snapshot, windows_json, services.fleet_view])
def test_the_lock_is_not_taken_anew_for_each_service(
    read: Callable[[AgentView], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "time", SimpleNamespace(monotonic=lambda: 0.0, time=lambda: 0.0))
    assert count_holds(8, read) == count_holds(40, read) <= 3


def test_the_mean_of_several_instruments_is_shown_nowhere() -> None:
    agent = everything()
    for window in NAMES:
        for mark in ("older", OTHER_FINGERPRINT):
            agent.fake.table["bot", "", "relevance", f"umbrela@{mark}", window] = estimate(2.0)
    shown = as_agent_view(agent)
    view = details_view(shown, "bot")
    for text in (
        str(take_snapshot(shown, detail=True).estimates),
        str([row.scorer for row in view.service.rows] if view else None),
        str(
            [
                row.get("fingerprint")
                for row in windows_json(shown)["services"]["bot"][""]["metrics"]
            ]
        ),
    ):
        assert "older" in text
        assert not re.search(rf"\b{OTHER_FINGERPRINT}\b", text)
