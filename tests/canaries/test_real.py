"""The real commands: a service, `ragmeter run` and `ragmeter canary run`, each a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from ragmeter.trace import Trace

from tests.crash import RAGMETER, settings_file, start
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "examples" / "canaries.yaml"
SECONDS = 90  # a busy machine takes tens of seconds to start a process


@contextmanager
def service() -> Iterator[str]:
    """The example service; its URL."""
    command = [sys.executable, str(ROOT / "examples" / "service.py"), "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def canary(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*RAGMETER, "canary", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=SECONDS, check=False
    )


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            if what():
                return
        except httpx.HTTPError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_check() -> None:
    found = canary("check", SUITE)
    assert (found.returncode, found.stderr) == (0, "support-bot: 4 questions, 2 of them required\n")
    missing = canary("check", SUITE.with_name("nothing.yaml"))
    assert missing.returncode == 2


def test_one_round_into_a_file(tmp_path: Path) -> None:
    out = tmp_path / "canaries.jsonl"
    with service() as url:
        found = canary("run", SUITE, "--endpoint", url, "--once", "-o", out, "--per-minute", "6000")
    assert found.returncode == 0, found.stderr
    traces = [Trace.model_validate_json(line) for line in out.read_bytes().splitlines()]
    assert [trace.tags["question"] for trace in traces] == [
        "refund-days",
        "shipping-cost",
        "opening-hours",
        "no-such-page",
    ]
    assert "2 of 4 canaries passed" in found.stderr
    assert "fact_checks 0, wanted 1 (failed: at 8)" in found.stderr
    # with the service gone the same round fails, every question is a trace all the same, and the
    # pipeline gets what the gate checked
    gate, junit = tmp_path / "gate.yaml", tmp_path / "gate.xml"
    rule: dict[str, object] = {"name": "Answers", "severity": "critical", "window": "1h"}
    rule |= {"metric": "canary_failed", "scorer": "reference", "op": ">", "threshold": 0.3}
    gate.write_text(json.dumps({"rules": [rule]}))
    arguments: list[str | Path] = [
        "run",
        SUITE,
        "--endpoint",
        url,
        "--once",
        "-o",
        out,
        "--per-minute",
        "6000",
    ]
    found = canary(*arguments, "--gate", gate, "--junit", junit)
    assert found.returncode == 1, found.stderr
    assert "failed       Answers: canary_failed by reference is 100.0 %" in found.stderr
    assert 'failures="1"' in junit.read_text()
    lines = out.read_bytes().splitlines()[4:]
    assert [Trace.model_validate_json(line).status for line in lines] == ["error"] * 4


@pytest.mark.slow
@pytest.mark.timeout(300)  # three processes to start, on a busy machine
def test_rounds_into_a_running_agent(tmp_path: Path) -> None:
    otlp, page = free_port(), free_port()
    config = settings_file(tmp_path, otlp_port=otlp, metrics_port=page)
    tree = json.loads(config.read_text())
    config.write_text(json.dumps({**tree, "limits": {"min_samples": 1}, "segments": ["category"]}))

    def metrics() -> dict[str, float]:
        urls = [f"http://127.0.0.1:{page}{path}" for path in ("/metrics", "/metrics/detail")]
        text = "".join(httpx.get(url, trust_env=False).text for url in urls)
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in rows}

    with service() as url:
        # the canaries begin before the agent is there: nothing of them may be lost
        sender = start(
            tmp_path,
            "canary",
            "run",
            SUITE,
            "--endpoint",
            url,
            "-c",
            config,
            "--every",
            "2s",
            "--per-minute",
            "6000",
        )
        agent = None
        try:
            until(lambda: "they wait" in (tmp_path / "talk.txt").read_text())
            agent = start(tmp_path, "run", "-c", config)
            own = 'service="support-bot",scorer="reference"'
            name = f'rag_fact_checks_mean{{{own},window="1h"}}'
            until(lambda: metrics().get(name) is not None)
            sender.send_signal(signal.SIGINT)
            assert sender.wait(SECONDS) == 0, (tmp_path / "talk.txt").read_text()
            until(lambda: metrics()["ragmeter_queue_depth"] == 0)
            found = metrics()
        finally:
            sender.kill()
            sender.wait()
            if agent is not None:
                agent.kill()
                agent.wait()
    # of each round: right, and the office's hours wrong
    assert found[name] == pytest.approx(0.5, abs=0.2)
    assert found[f'rag_canary_failed_ratio{{{own},window="1h"}}'] == 0
    segment = 'service="support-bot",category="unanswerable",scorer="reference",window="1h"'
    assert found[f"rag_unanswerable_hallucination_ratio{{{segment}}}"] == 1
    canaries = found['rag_canaries_total{service="support-bot",status="ok"}']
    assert canaries >= 4
    # and they are no traffic
    assert found['rag_requests_total{service="support-bot",status="ok"}'] == 0
    assert not [key for key in found if key.startswith("rag_grounding_mean")]
    mismatch = {key: v for key, v in found.items() if key.startswith("ragmeter_accounting")}
    assert set(mismatch.values()) == {0.0}
    # a reply that took too long makes the runner send again, and that counts nothing
    source = '{source="http"}'
    again = found[f"ragmeter_traces_duplicate_total{source}"]
    assert found[f"ragmeter_traces_received_total{source}"] - again == canaries
