"""People label traces of a worker on a real Kafka, and another worker goes on after its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ragmeter.aggregate.evidence import encode_evidence
from ragmeter.core.feedback import Feedback, Verdict
from ragmeter.kafka import worker_view
from ragmeter.parts.labels.desk import LabelDesk
from ragmeter.parts.labels.documents import LabelDocument
from ragmeter.parts.labels.pool import PoolTrace
from ragmeter_exporters.page.part_pages import PartPageMaker

from tests.backends import Partition, settings_of
from tests.kafka.cluster import Worker, workers
from tests.kafka.place import Place, page
from tests.parts.labels.samples import part_of
from tests.traces import START, make_trace, trace_line
from tests.waiting import PATIENCE, until

TRACES, DRAWN = 12, 4
SETTINGS = {"sampling": {"people": 1}, "limits": {"min_samples": 2}, "models": {"cpu_share": 0}}
LEFT = f"{DRAWN - 2} left; the same command goes on"


def label(worker: Worker, keys: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "ragmeter", "label", "-n", str(DRAWN)]
    address = ["--url", f"http://127.0.0.1:{worker.port}"]
    done = subprocess.run(
        [*command, *address], input=keys, capture_output=True, text=True, timeout=PATIENCE
    )
    return done.returncode, done.stdout, done.stderr


def label_when_read(worker: Worker, keys: str, count: int) -> tuple[int, str, str]:
    """Do as `label`, once the texts of all `count` that are drawn are read again from the topic."""
    # what stops at once stores nothing; labels of the first texts would leave fewer questions
    until(lambda: f"1 of {count}" in label(worker, "q\n")[1])
    return label(worker, keys)


def label_of(one: PoolTrace, service: str) -> dict[str, Any]:
    named = {"trace_id": one.trace_id, "service": service, "timestamp": START, "scorer": "people"}
    return {**named, "probability": one.probability, "verdict": {"answered": False}}


def people(worker: Worker) -> dict[str, float]:
    return {
        name: value
        for name, value in worker.metrics().items()
        if name.startswith("rag_grounding_") and 'scorer="people' in name
    }


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_labels_of_a_worker_are_durable_and_another_goes_on(place: Place) -> None:
    worker, other = (place.worker(name, settings=SETTINGS) for name in "ab")
    with workers(worker):
        until(lambda: worker.ready)
        place.produce([trace_line(n, answer=f"Text {n} of a trace.") for n in range(TRACES)])
        until(lambda: worker.traces() == TRACES)
        assert f"{TRACES} traces wait" in page(worker, "/label/bot")[1]
        # the texts are read again from the topic
        until(lambda: page(worker, "/trace/bot/t0")[1].count("Text 0 of a trace."))
        code, shown, reported = label_when_read(worker, "y\ny\ny\ny\nn\ny\nq\n", DRAWN)
        assert code == 0, reported
        assert "Text " in shown
        assert LEFT in reported
        two = people(worker)
        assert two
        worker.kill()
    with workers(other):
        until(lambda: other.ready)
        assert people(other) == two
        code, shown, reported = label_when_read(other, "y\ny\ny\n" * (DRAWN - 2), DRAWN - 2)
        assert code == 0, reported
        assert f"1 of {DRAWN - 2}" in shown
        assert people(other) != two
        assert other.stop() == 0, other.log


def test_a_trace_is_asked_about_once_its_text_is_here_and_forgotten_without(tmp_path: Path) -> None:
    backend = Partition(settings_of(tmp_path, sampling={"people": 1}, models={"cpu_share": 0}))
    backend.feed([trace_line(0), trace_line(1)])
    desk = LabelDesk(backend.view, PartPageMaker(backend.view))
    state = backend.state
    pool = part_of(state).pool
    pool.draw("bot", 2)
    first, second = sorted(pool.state("bot")[0])
    assert desk._text("bot", first) is None, "pending"
    assert desk._left("bot") == pool.state("bot")[0]
    (record, _) = (one for _, one in sorted(state.evidence.missing_texts()))
    body = encode_evidence(make_trace(0), record.scored, 10_000)
    state.evidence.save_text(("bot", first.trace_id), body)
    state.evidence.save_text(("bot", second.trace_id), None)  # it has left the topic
    kept = desk._text("bot", first)
    assert kept is not None
    assert kept["trace"]["answer"] == make_trace(0).answer
    assert desk._text("bot", second) is None
    assert desk._left("bot") == [first]


def test_a_label_that_kafka_does_not_take_is_not_said_to_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_view, "COMMAND_PATIENCE", 0.1)
    backend = Partition(settings_of(tmp_path, sampling={"people": 1}, models={"cpu_share": 0}))
    backend.feed([trace_line(0)])
    desk = LabelDesk(backend.view, PartPageMaker(backend.view))
    part_of(backend.state).pool.draw("bot", 1)
    reported = desk._store("bot", "t0", Verdict(answered=False))
    assert reported.startswith("Not known to be stored: applied, but lost if this worker ends")
    backend._commit()
    assert backend.metrics()['ragmeter_feedback_total{outcome="joined"}'] == 1, "it was stored"


def test_services_that_are_too_many_are_drawn_from_partition_after_partition(
    tmp_path: Path,
) -> None:
    limits = {"services": 1}
    own = settings_of(tmp_path, sampling={"people": 1}, models={"cpu_share": 0}, limits=limits)
    first, second = Partition(own), Partition(own)
    for backend, count in ((first, 2), (second, 3)):
        backend.feed([trace_line(9, service="bot")])
        backend.feed([trace_line(n, service=f"s{n}") for n in range(count)])
    view = first.view
    view._group.held[1] = second.state
    desk = LabelDesk(view, PartPageMaker(view))
    for _ in range(2):
        place = desk._place("__other__")
        (state,) = (one.state for one in (first, second) if part_of(one.state) is place)
        pool = part_of(state).pool
        pool.draw("__other__", 2)
        assert desk._place("__other__") is place, "until all of it is labelled"
        for one in pool.state("__other__")[0]:
            given = Feedback.model_validate(label_of(one, service=f"s{one.trace_id[1:]}"))
            state.receive("labels", [LabelDocument.of(given)], "page")
        assert pool.state("__other__")[0] == []
    assert {len(part_of(one.state).pool.labelled) for one in (first, second)} == {2}


def test_a_draw_between_the_count_of_traces_and_its_step_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Partition(settings_of(tmp_path, sampling={"people": 1}, models={"cpu_share": 0}))
    with monkeypatch.context() as patch:
        patch.setattr(backend, "_commit", lambda: None)
        backend.feed([trace_line(n) for n in range(12)])
    pool = part_of(backend.state).pool
    desk = LabelDesk(backend.view, PartPageMaker(backend.view))
    pool.draw("bot", 5)
    drawn = desk._left("bot")
    document = desk._document("bot", "24h")
    assert document["questions"] == []
    assert "ask again" in document["note"]
    assert desk._left("bot") == drawn, "their texts are on the way"
    backend.state.step()
    assert all(pool.is_new(("bot", one.trace_id)) for one in drawn), "it may not be durable yet"
    backend.state.committed()
    backend.state.step()
    assert not any(pool.is_new(("bot", one.trace_id)) for one in drawn)
    (first, *_) = drawn
    backend.state.evidence.save_text(("bot", first.trace_id), None)
    desk._document("bot", "24h")
    assert desk._left("bot") == drawn[1:], "gone for good"
