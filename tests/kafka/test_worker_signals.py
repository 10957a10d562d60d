"""SIGTERM and SIGHUP for workers on a real Kafka."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.kafka.operator.administration import read_lag
from ragmeter.kafka.operator.clients import guarded

from tests.kafka.cluster import SERVICES, Worker, workers
from tests.kafka.place import Place
from tests.scorers.judge.stub_process import stub_judge
from tests.traces import trace_line
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]

DRAIN = 4.0
STEPS = 6  # of the time from the start of a worker until it is ready
SLACK = 6.0  # to commit, to leave the group and to end the process, on a busy machine


def lines(first: int, count: int, name: str = "t") -> list[bytes]:
    return [
        trace_line(n, trace_id=f"{name}{n}", service=SERVICES[n % len(SERVICES)])
        for n in range(first, first + count)
    ]


def terminated(worker: Worker) -> float:
    """How long it took."""
    began = time.monotonic()
    assert worker.stop(60) == 0, worker.log
    return time.monotonic() - began


def catches_sigterm(worker: Worker) -> bool:
    assert worker.process is not None
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> signal.SIGTERM - 1 & 1)


@pytest.mark.long
def test_sigterm_ends_a_worker_well_at_any_moment_of_its_start(place: Place) -> None:
    """While it imports, connects, joins and loads, and when it is just ready."""
    worker = place.worker(program=("-c", "from ragmeter.cli import start; start()"))
    with workers(worker):
        began = time.monotonic()
        until(lambda: worker.ready)
        whole = time.monotonic() - began
        place.produce(lines(0, 200))
        until(lambda: worker.traces() == 200)
        terminated(worker)
        for step in range(STEPS):
            worker.start()
            # before that Python itself starts, which takes some 50 ms
            until(lambda: catches_sigterm(worker), pause=0.001)
            time.sleep(whole * 1.1 * step / STEPS)
            assert terminated(worker) < SLACK
        worker.start()
        until(lambda: worker.ready)
        terminated(worker)
        assert "Traceback" not in worker.log
        worker.start()
        until(lambda: worker.traces() == 200)


def test_what_was_begun_is_finished_before_the_end(place: Place) -> None:
    drain = {"limits": {"drain_seconds": DRAIN}}
    worker = place.worker(odd="slow", settings=drain, in_flight=4)
    with workers(worker):
        until(lambda: worker.ready)
        place.produce(lines(0, 100))
        until(lambda: worker.traces() >= 4)
        assert terminated(worker) < DRAIN + SLACK
        assert "did not finish in" not in worker.log
    with guarded(place.settings.kafka):
        rows = read_lag(place.settings, PARTS)
    scored = sum(row.committed or 0 for row in rows if row.topic == place.traces)
    assert scored >= 4, "what was begun was committed"
    sound = place.worker("b")
    with workers(sound):
        until(lambda: sound.traces() == 100)


def test_a_worker_that_cannot_finish_ends_all_the_same(place: Place) -> None:
    drain = {"limits": {"drain_seconds": DRAIN}}
    worker = place.worker(odd="stuck", settings=drain)
    with workers(worker):
        until(lambda: worker.ready)
        place.produce(lines(0, 9))
        until(lambda: worker.traces() == 9)
        place.produce([*lines(9, 2, "stuck"), *lines(11, 30)])
        time.sleep(2)
        assert DRAIN - 1 < terminated(worker) < DRAIN + SLACK
        assert "did not finish in 4 s" in worker.log
    sound = place.worker("b")
    with workers(sound):
        until(lambda: sound.traces() == 41)
        time.sleep(1)
        assert sound.traces() == 41


def test_sighup_brings_other_rates_and_rules_of_redaction(place: Place) -> None:
    with stub_judge() as judge:
        settings = {
            "judge": {
                "base_url": judge.base_url,
                "model": "stub",
                "metrics": ["answered"],
                "probes": {"enabled": False},  # each is a call
            },
            "sampling": {"judge": 1e-9},
        }
        worker = place.worker(settings=settings)
        with workers(worker):
            until(lambda: worker.ready)
            place.produce(lines(0, 20))
            until(lambda: worker.traces() == 20)
            assert judge.stats()["calls"] == 0
            config = place.folder / "a.json"
            tree = json.loads(config.read_text())
            hup(worker, config, {**tree, "sampling": {"judge": "often"}})
            until(lambda: "the settings stay as they were" in worker.log)
            hup(worker, config, {**tree, "sampling": {"judge": 1.0}, "segments": ["model"]})
            until(lambda: "holds from now on: sampling.judge" in worker.log)
            assert "only after a restart: segments" in worker.log
            place.produce(lines(20, 20))
            until(lambda: worker.traces() == 40)
            assert judge.stats()["calls"] > 0
            assert worker.ready
            assert worker.stop() == 0, worker.log


def hup(worker: Worker, config: Path, tree: object) -> None:
    assert worker.process is not None
    config.write_text(json.dumps(tree))
    worker.process.send_signal(signal.SIGHUP)
