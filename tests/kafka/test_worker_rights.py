"""Workers of a user with exactly the rights that the documentation grants, and with one less."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ragmeter.cli.kafka import kafka_app
from typer.testing import CliRunner

from tests.kafka.cluster import Worker, workers
from tests.kafka.otlp_bodies import as_proto, rag_run
from tests.kafka.place import Place, page
from tests.kafka.rights import documented_rights, grant, limited
from tests.kafka.test_worker_labels import label
from tests.traces import trace_line
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]


def worker_of(place: Place) -> Worker:
    otlp = {"grace_seconds": 1, "idle_seconds": 20}
    return place.worker(settings={"otlp": otlp}, **limited(place.server))


def test_the_documented_rights_are_enough(place: Place, tmp_path: Path) -> None:
    grant(place, list(documented_rights()))
    worker = worker_of(place)
    with workers(worker):
        until(lambda: worker.ready)
        place.produce([trace_line(n) for n in range(20)])
        place.produce([label("t1"), b"{nonsense"], place.settings.kafka.topics.feedback)
        place.produce([as_proto(rag_run(n, "shop")) for n in range(4)])
        until(lambda: worker.traces() == 24)
        until(lambda: len(place.letters()) == 1)
        joined = 'ragmeter_feedback_total{outcome="joined"}'
        until(lambda: worker.metrics().get(joined) == 1)
        for command in (["lag"], ["dlq", "list"]):
            config = str(tmp_path / "a.json")
            done = CliRunner().invoke(kafka_app, [*command, "--config", config])
            assert done.exit_code == 0, done.output
        assert worker.stop() == 0, worker.log
        assert "uthorization" not in worker.log


@pytest.mark.parametrize(
    ("kind", "operation", "notified"),
    [
        ("topic", "Read", r"needs Read and Write of the topic {prefix}(traces|scores|feedback)"),
        ("topic", "Write", r"needs Read and Write of the topic {group}-aggregates"),
        ("group", "Read", r"needs Read of the group {group}"),
        ("transactional_id", "Write", r"needs Write and Describe of the transactional id {group}-"),
    ],
)
def test_a_right_that_is_missing_is_named_until_it_is_granted(
    place: Place, kind: str, operation: str, notified: str
) -> None:
    rights = list(documented_rights())
    missing = [one for one in rights if (one.kind, one.operation) == (kind, operation)]
    grant(place, [one for one in rights if one not in missing])
    kafka = place.settings.kafka
    pattern = notified.format(prefix=re.escape(kafka.topics.prefix), group=kafka.group)
    worker = worker_of(place)
    with workers(worker):
        place.produce([trace_line(n) for n in range(4)])
        until(lambda: re.search(pattern, page(worker, "/readyz")[1]))
        assert page(worker, "/readyz")[0] == 503
        grant(place, missing)
        until(lambda: worker.traces() == 4)
        until(lambda: worker.ready)


def test_a_user_without_any_right_is_told_what_to_grant(place: Place) -> None:
    worker = worker_of(place)
    with workers(worker):
        until(lambda: "or let the user Describe it" in page(worker, "/readyz")[1])
    grant(place, list(documented_rights()))
    done = CliRunner().invoke(kafka_app, ["init", "--config", str(place.folder / "a.json")])
    assert done.exit_code == 1
    assert "the user needs DescribeConfigs of the topic" in " ".join(done.output.split())
