"""Several partitions read as one: each service where it lives, and sums of what all count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.rules import parse_rules
from ragmeter.core.counters import Counters
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state.seen_ids import SeenIdRows
from ragmeter.kafka.worker_view import ProcessReadings, WorkerView
from ragmeter.store.rows import OutboxItem
from ragmeter_exporters.prometheus import PrometheusExporter

from tests.embedded.test_agent import ERRORS
from tests.embedded.test_agent import settings as settings_of
from tests.kafka.cluster import quality
from tests.kafka.state.partition import Owned, apply, record, state_of
from tests.samples import samples
from tests.traces import START

DUPLICATE = "ragmeter_traces_duplicate_total"
HERE = (("source", "kafka"),)


def reading_of(
    states: dict[int, PartitionState],
    process: Counters | None = None,
    problems: Callable[[], list[str]] = list,
) -> WorkerView:
    settings = settings_of(Path("unused"))
    limits = settings.limits.model_copy(update={"dedupe_hours": 1.0})
    settings = settings.model_copy(update={"limits": limits})
    empty = Aggregator(settings, parse_rules([ERRORS]), []).windows
    group: Any = Owned(states)
    readings = ProcessReadings(problems, waiting=lambda: 3)
    return WorkerView(settings, group, empty, process or Counters(), readings)


def state_with(*services: str, first: int = 0, count: int = 40, **changes: Any) -> PartitionState:
    state = state_of()
    names = [services[n % len(services)] for n in range(count)]
    apply(state, [record(first + n, service=name, **changes) for n, name in enumerate(names)])
    return state


@pytest.fixture
def pair() -> dict[int, PartitionState]:
    return {
        1: state_with("bot", "shop"),
        4: state_with("wiki", first=1000, count=20, status="error"),
    }


def exported(reading: WorkerView) -> dict[str, float]:
    exporter = PrometheusExporter(reading)
    return samples((exporter.render() + exporter.render_detail()).decode())


def test_each_service_has_the_dedupe_window_of_its_partition(
    pair: dict[int, PartitionState],
) -> None:
    ids = pair[4]._ids = SeenIdRows(3600.0, most=5)
    for number in range(100):
        ids.add("wiki", str(number), START + 10 * number)
    both = exported(reading_of(pair))
    assert both['ragmeter_dedupe_window_seconds{service="bot"}'] == 3600
    assert both["ragmeter_dedupe_horizon_seconds"] == 3600
    now = pair[4].aggregator.windows.now
    assert now is not None
    short = both['ragmeter_dedupe_window_seconds{service="wiki"}']
    assert short == ids.window(now) < 200


def test_all_services_are_exported_as_from_one_state(pair: dict[int, PartitionState]) -> None:
    alone = exported(reading_of({1: pair[1]})) | quality(exported(reading_of({4: pair[4]})))
    both = exported(reading_of(pair))
    assert quality(both) == quality(alone)
    assert {name for name in ("bot", "shop", "wiki") if f'service="{name}"' in str(both)} == {
        "bot",
        "shop",
        "wiki",
    }
    assert reading_of(pair).windows.services() == ["bot", "shop", "wiki"]


def test_a_service_that_went_away_leaves_nothing(pair: dict[int, PartitionState]) -> None:
    reading = reading_of(pair)
    del pair[4]
    assert 'service="wiki"' not in str(exported(reading))
    assert reading.windows.services() == ["bot", "shop"]
    assert reading.windows.count_traces("bot", "", "1h") > 0
    assert reading.windows.count_traces("wiki", "", "1h") == 0
    with pytest.raises(AttributeError):
        reading.windows.no_such_thing  # type: ignore[attr-defined]  # noqa: B018


def test_counters_are_summed_over_partitions_and_the_process(
    pair: dict[int, PartitionState],
) -> None:
    process = Counters()
    reading = reading_of(pair, process)
    for state in pair.values():
        apply(state, [replace(record(5), source=None)])
    found = {key: value for key, value in reading.counters.items() if key[0] == DUPLICATE}
    own = [state.aggregator.counters.get(DUPLICATE, HERE) for state in pair.values()]
    assert found.get((DUPLICATE, HERE), 0) == sum(own)
    process.inc(DUPLICATE, HERE, 10)
    assert reading.counters.get(DUPLICATE, HERE) == sum(own) + 10


def test_now_is_the_newest_event_time(pair: dict[int, PartitionState]) -> None:
    assert reading_of(pair).windows.now == START + 1019
    assert reading_of({}).windows.now is None


def items(state: PartitionState, *names: str, created: float) -> None:
    state.outbox.add([OutboxItem(name, name[:1], "{}", created) for name in names])
    state.committed()


def test_the_outboxes_are_one(pair: dict[int, PartitionState]) -> None:
    items(pair[1], "b1", "b2", created=2.0)
    items(pair[4], "a1", created=1.0)
    outbox = reading_of(pair).outbox
    assert [item.id for item in outbox.due(10.0, 9)] == ["a1", "b1"], "b2 is behind b1"
    assert [item.id for item in outbox.due(10.0, 1)] == ["a1"]
    outbox.retry("a1", 20.0)
    assert [item.id for item in outbox.due(10.0, 9)] == ["b1"]
    outbox.done("b1")
    assert [item.id for item in outbox.due(20.0, 9)] == ["a1", "b2"]
    assert pair[1].outbox.due(20.0, 9)[0].id == "b2"


def test_alerts_of_all_partitions_are_shown(pair: dict[int, PartitionState]) -> None:
    found = reading_of(pair).alerts()
    assert {alert.service for alert in found} == {
        alert.service for state in pair.values() for alert in state.aggregator.parts.alerts()
    }
    assert "wiki" in {alert.service for alert in found}


def test_health_says_what_is_wrong(pair: dict[int, PartitionState]) -> None:
    reading = reading_of(pair, problems=lambda: ["no broker"])
    assert not reading.health().ready
    assert reading.health().problems == ("no broker",)
    assert reading.health().queue_depth == 3
    assert reading_of(pair).health().ready
