"""A real Prometheus scrapes the live app, and gives back what was exported."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from ragmeter.core.counters import DURATION_EDGES, Exemplar

from tests.exporters.fakes import everything
from tests.exporters.server import serving
from tests.prometheus_server import prometheus
from tests.waiting import PATIENCE

CONFIG = """
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: ragmeter
    static_configs: &targets
      - targets: ["127.0.0.1:{port}"]
  - job_name: ragmeter-detail
    metrics_path: /metrics/detail
    static_configs: *targets
"""


def ask(client: httpx.Client, path: str, **parameters: Any) -> Any:
    """The answer's data, as soon as there is one that is not empty."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            answer = client.get(path, params=parameters)
            found = answer.json().get("data") if answer.status_code == 200 else None
            if found and found not in ({"resultType": "vector", "result": []}, []):
                return found
        except httpx.TransportError:
            pass
        if time.monotonic() > end:
            raise TimeoutError(f"{path} {parameters}")
        time.sleep(0.2)


def value(client: httpx.Client, query: str) -> float:
    (series,) = ask(client, "/query", query=query)["result"]
    return float(series["value"][1])


@pytest.mark.real
def test_prometheus_gives_back_what_was_exported(tmp_path: Path) -> None:
    agent = everything()
    now = time.time()
    # Exemplars of old traces would lie outside the range that Prometheus is asked for.
    service = (("service", "bot"),)
    trace_id = "mtrag:8d/7 é"
    exemplar = Exemplar(trace_id, 0.6, now)
    agent.counters.observe(
        "rag_request_duration_seconds", service, [0.6], DURATION_EDGES, [exemplar]
    )
    with serving(agent) as port, prometheus(tmp_path, CONFIG.format(port=port)) as client:
        assert value(client, 'rag_grounding_mean{model="",tag_service="",window="1h"}') == 0.8
        assert value(client, 'rag_relevance_ci_upper{model="m-1",window="24h"}') == 2.15
        assert value(client, 'rag_requests_total{service="bot",status="timeout"}') == 0
        assert value(client, "ragmeter_build_info") == 1
        assert value(client, "max(ragmeter_accounting_mismatch)") == 0
        assert value(client, 'rag_request_duration_seconds_bucket{le="60.0"}') == 4
        quantile = 'rag_latency_quantile_seconds{model="",tag_service="",stage="total"'
        assert value(client, f'{quantile},quantile="0.95",window="1h"}}') == 2.5
        assert value(client, 'rag_relevance_mean{window="5m",model="m-1"}') == 2.1
        absent = 'absent(rag_relevance_mean{window="5m",model="",tag_service=""})'
        assert value(client, absent) == 1

        targets = ask(client, "/targets")["activeTargets"]
        assert [(one["health"], one["lastError"]) for one in targets] == [("up", "")] * 2
        metadata = ask(client, "/metadata", metric="rag_answered_ratio")
        assert metadata["rag_answered_ratio"][0]["unit"] == "ratio"

        found = ask(
            client,
            "/query_exemplars",
            query="rag_request_duration_seconds_bucket",
            start=now - 60,
            end=now + 60,
        )
        exemplars = [item for series in found for item in series["exemplars"]]
        assert {item["labels"]["trace_id"] for item in exemplars} == {trace_id}
        assert {float(item["value"]) for item in exemplars} == {0.6}
