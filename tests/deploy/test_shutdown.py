"""What the chart gives an agent to end in, and what one takes at worst."""

from __future__ import annotations

import math
import signal
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from ragmeter.app.settings import load_settings

from tests.deploy.charts import pod, render
from tests.patched import running
from tests.traces import trace_dict
from tests.waiting import PATIENCE, until

DRAIN = 3.0
ACCEPT = {"http": {"accept": ["open", "plain"]}}  # as in ci/default-values.yaml

# Each trace takes as long as the worst of them, and nothing ends by itself.
SLOW = """
from ragmeter.scoring.scorer import Scorer
from tests.waiting import PATIENCE, until
real = Scorer.draw
def score(self, *arguments):
    time.sleep(0.2)
    return real(self, *arguments)
Scorer.draw = score
"""


@pytest.mark.real
@pytest.mark.parametrize("mode", ["standalone", "worker"])
def test_the_grace_period_follows_the_drain(mode: str) -> None:
    kafka = {"kafka": {"bootstrap_servers": ["kafka:9092"]}} if mode == "worker" else {}

    def grace(**config: Any) -> Any:
        values = {"mode": mode, "config": {**kafka, **ACCEPT, **config}}
        return pod(render(values))["terminationGracePeriodSeconds"]

    assert grace(limits={"drain_seconds": DRAIN}) == math.ceil(DRAIN) + 20
    assert grace() == load_settings(environ={}).limits.drain_seconds + 20


@pytest.mark.slow
@pytest.mark.real
def test_an_agent_ends_within_it_whatever_hangs(tmp_path: Path) -> None:
    """A queue that takes minutes, a judge and a webhook that never answer, a client that holds its
    connection: it ends in time, and what was not done is durable."""
    config = {**ACCEPT, "limits": {"drain_seconds": DRAIN}}
    seconds = pod(render({"config": config}))["terminationGracePeriodSeconds"]
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:  # takes and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process, otlp, _ = running(
            tmp_path,
            SLOW,
            {"drain_seconds": DRAIN},
            judge={"base_url": url, "model": "m"},
            sampling={"judge": 1.0},
            alerts={"webhook_url": url, "alertmanager_url": url},
        )
        try:
            now = time.time()
            traces = [trace_dict(n, timestamp=now) for n in range(500)]
            post = f"http://127.0.0.1:{otlp}/v1/rag/traces"
            assert httpx.post(post, json=traces, timeout=PATIENCE).status_code == 200
            held = socket.create_connection(("127.0.0.1", otlp))
            held.sendall(b"POST /v1/rag/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n")
            time.sleep(2)
            begin = time.monotonic()
            process.send_signal(signal.SIGTERM)
            until(lambda: process.poll() is not None, seconds + 30)
            took = time.monotonic() - begin
            held.close()
            assert process.returncode == 0
        finally:
            process.kill()
            process.wait()
    talk = " ".join((tmp_path / "talk").read_text().split())
    assert "stopped with traces in the queue: they are durable" in talk
    assert took > DRAIN, "it drained"
    assert took < seconds, f"{took:.1f} s of {seconds}"
    print(f"ended after {took:.1f} s of {seconds}")
