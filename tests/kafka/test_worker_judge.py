"""Slow tiers in line, on workers with a real Kafka and a stub judge in a process of its own."""

from __future__ import annotations

import time
from typing import Any

import pytest
from ragmeter.scoring.inline_tiers import TIMEOUT_POLICY

from tests.kafka.cluster import SERVICES, workers
from tests.kafka.place import Place
from tests.scorers.judge.stub_process import stub_judge
from tests.traces import trace_line
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]


def judged(url: str, rate: float = 1.0) -> dict[str, Any]:
    return {
        "judge": {
            "base_url": url,
            "model": "stub",
            "metrics": ["answered"],
            "concurrency": 8,
        },
        "sampling": {"judge": rate},
    }


def lines(first: int, count: int) -> list[bytes]:
    return [
        trace_line(n, service=SERVICES[n % len(SERVICES)], answer=f"Click Forgot password {n}.")
        for n in range(first, first + count)
    ]


def canaries(first: int, count: int) -> list[bytes]:
    gold = {"answer": "Click Forgot password.", "facts": ["Forgot password"]}
    return [
        trace_line(n, service=SERVICES[n % len(SERVICES)], reference=gold, answer=f"Canary {n}.")
        for n in range(first, first + count)
    ]


def results(found: dict[str, float], by: str = "judge") -> dict[str, float]:
    """How many results of the judge there are, by state (and reason)."""
    total: dict[str, float] = {}
    for name, value in found.items():
        if name.startswith("ragmeter_results_total{") and 'metric="answered"' in name:
            labels = dict(part.split("=") for part in name.split("{")[1].rstrip("}").split(","))
            if labels["scorer"] == f'"{by}"':
                key = labels.get("reason", labels["state"]).strip('"')
                total[key] = total.get(key, 0) + value
    return total


def test_a_slow_judge_loses_no_trace_and_a_kill_leaves_one_result_for_each(place: Place) -> None:
    with stub_judge(0.3) as judge:
        worker = place.worker(settings=judged(judge.base_url), in_flight=16)
        with workers(worker):
            until(lambda: worker.ready)
            place.produce([*lines(0, 60), *canaries(900, 5), *lines(60, 60), b"{"])
            until(lambda: worker.traces() >= 20)
            worker.kill()
            worker.start()
            until(lambda: worker.traces() == 120)
            found = results(worker.metrics())
            # how many are drawn of a burst is the budget's matter: at least the first
            assert 0 < found["scored"] <= judge.stats()["calls"]
            # and what a busy machine is late with is shed
            assert sum(found.get(name, 0) for name in ("scored", "sampled_out", "shed")) == 120
            assert sum(found.values()) == 120
            # canaries are apart, and each is judged and held against its reference
            until(lambda: results(worker.metrics(), "canary/judge").get("scored") == 5)
            assert sum(results(worker.metrics(), "canary/judge").values()) == 5
            held = {
                name: value
                for name, value in worker.metrics().items()
                if name.startswith("ragmeter_results_total{")
                and 'metric="fact_coverage",scorer="reference",state="scored"' in name
            }
            assert sum(held.values()) == 5
            assert worker.stop() == 0, worker.log


def test_a_judge_that_hangs_is_left_alone(place: Place) -> None:
    with stub_judge(3600) as judge:
        worker = place.worker(odd="hasty", settings=judged(judge.base_url), in_flight=16)
        with workers(worker):
            until(lambda: worker.ready)
            place.produce(lines(0, 400))
            until(lambda: worker.traces() == 400)
            assert "the judge tier does not answer" in worker.log
            found = results(worker.metrics())
            # what waits for the judge lowers what is drawn, to nothing where a full window waits
            assert found["timeout"] >= TIMEOUT_POLICY.streak
            assert sum(found.get(name, 0) for name in ("timeout", "sampled_out", "shed")) == 400
            assert sum(found.values()) == 400
            assert judge.stats()["calls"] >= TIMEOUT_POLICY.streak
            # it is known now: of what comes next only a try in each pause of 30 s is asked
            before = judge.stats()["calls"]
            began = time.monotonic()
            place.produce(lines(400, 200))
            until(lambda: worker.traces() == 600)
            tries = 2 + (time.monotonic() - began) // 30
            assert judge.stats()["calls"] <= before + tries, worker.log
            assert worker.ready
            assert worker.stop() == 0, worker.log
