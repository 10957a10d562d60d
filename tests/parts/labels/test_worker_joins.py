"""Labels over a real Kafka: between a label and its trace a worker joins and another dies."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest

from tests.kafka.cluster import Worker, workers
from tests.kafka.place import Place
from tests.traces import START, trace_line
from tests.waiting import until


def label(number: int, helpful: bool = True, **fields: Any) -> bytes:
    item = {
        "trace_id": f"t{number}",
        "service": "bot",
        "timestamp": START + number,
        "answer": {"helpful": helpful},
        **fields,
    }
    return json.dumps({name: value for name, value in item.items() if value is not None}).encode()


def outcomes(worker: Worker) -> dict[str, float]:
    """What became of the feedback, and how much has come and waits."""
    found: dict[str, float] = {}
    for name, value in worker.metrics().items():
        if name.startswith("ragmeter_feedback_total"):
            found[name.partition('outcome="')[2].partition('"')[0]] = value
        elif name.startswith(("ragmeter_feedback_received_total", "ragmeter_feedback_waiting")):
            found[name.partition("{")[0].removeprefix("ragmeter_feedback_")] = value
    return {name: value for name, value in found.items() if value}


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_labels_find_their_traces_through_a_rebalance_and_a_kill(place: Place) -> None:
    feedback = place.settings.kafka.topics.feedback
    worker, other = place.worker("a"), place.worker("b")
    with workers(worker), ExitStack() as stack:
        until(lambda: worker.ready)
        place.produce([trace_line(0), trace_line(1)])
        until(lambda: worker.traces() == 2)
        broken = [b"{nonsense", label(0, service=None)]
        place.produce([label(0), label(0), *map(label, range(2, 8)), *broken], topic=feedback)
        before = {"joined": 1, "repeated": 1, "received_total": 8, "waiting": 6}
        until(lambda: outcomes(worker) == before)
        until(lambda: len(place.letters()) == 2)
        notified = [(dict(one.headers)["topic"], one.value) for one in place.letters()]
        assert sorted(notified) == sorted((feedback.encode(), one) for one in broken)
        stack.enter_context(workers(other))  # the partitions are dealt anew
        until(lambda: other.ready and worker.ready)
        worker.kill()
        until(lambda: outcomes(other) == before)
        # all traces twice, those with labels too, and the label of the last one
        again = [trace_line(n) for n in range(8)]
        place.produce([*again, *again])
        place.produce([label(1, False)], topic=feedback)
        after = {"joined": 8, "repeated": 1, "received_total": 9}
        until(lambda: outcomes(other) == after)
        until(lambda: other.traces() == 8)
        found = other.metrics()
        shown = [v for k, v in found.items() if k.startswith("rag_helpfulness_ratio{")]
        assert shown == [pytest.approx(7 / 8)] * len(shown)
        assert shown
        assert other.stop() == 0, other.log
