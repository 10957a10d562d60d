"""What the dashboard looks at: a real agent with a stub judge under traffic, and a Prometheus.

`watched` starts all of it. The traffic is the bundled traces again and again, each with an id and
a time of its own, and with what they lack: timings, tokens, citations, failures.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from tests.crash import start
from tests.deploy.tools import ROOT
from tests.ports import free_port
from tests.prometheus_server import prometheus
from tests.scorers.judge.stub_process import stub_judge
from tests.waiting import PATIENCE, until

__all__ = ["World", "sample", "scraped", "watched"]

RULES = ROOT / "helm" / "ragmeter" / "files" / "ragmeter.rules.yaml"
CONFIG = """
global: {{scrape_interval: {interval}s, evaluation_interval: {interval}s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: ragmeter
    static_configs: [{{targets: {targets}}}]
"""


class World:
    """`ask` is Prometheus' API; traces are sent to `traffic`."""

    def __init__(self, ask: httpx.Client, metrics: str, traffic: str) -> None:
        self.ask = ask
        self.metrics = metrics
        self._traffic = httpx.Client(base_url=traffic, timeout=PATIENCE)

    def send(self, traces: Sequence[dict[str, Any]]) -> None:
        self._traffic.post("/v1/rag/traces", json=list(traces)).raise_for_status()

    def listens(self) -> bool:
        """Whether traces can be sent: that port opens last."""
        try:
            self._traffic.get("/")
        except httpx.TransportError:
            return False
        return True

    def opens(self, *path: str) -> bool:
        """Whether the status page has a page there; of traces it keeps the worst."""
        place = "/".join(quote(part, safe="") for part in path)
        return httpx.get(f"{self.metrics}/{place}").status_code == 200

    def close(self) -> None:
        self._traffic.close()


def sample(seed: int = 0) -> Iterator[dict[str, Any]]:
    """The bundled traces for ever, as of now."""
    rng = random.Random(seed)
    lines = (ROOT / "examples" / "mtrag.jsonl").read_text(encoding="utf-8").splitlines()
    traces = [json.loads(line) for line in lines]
    while True:
        for trace in rng.sample(traces, len(traces)):
            total = rng.lognormvariate(0.6, 0.5)
            if rng.random() < 0.1:  # without texts
                trace = trace | {"passages": [{"id": f"kb-{rng.randrange(500)}"}]}
            elif rng.random() < 0.1:  # a canary: somebody has asked it and knows the answer
                answer = trace.get("answer") or "It is not known."
                check = {"name": "it says something", "patterns": ["[a-z]"]}
                trace = trace | {"reference": {"answer": answer, "checks": [check]}}
            yield trace | {
                "trace_id": uuid.uuid4().hex,
                "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "status": rng.choices(["ok", "error", "timeout"], [985, 10, 5])[0],
                "answer": _cited(trace, rng),
                "timings": {"total": total, "retrieval": total * rng.uniform(0.05, 0.2)},
                "usage": {
                    "input_tokens": rng.randrange(900, 3000),
                    "output_tokens": rng.randrange(40, 300),
                    "cost_usd": rng.uniform(0.001, 0.004),
                },
            }


def _past(traces: Iterator[dict[str, Any]], number: int) -> Iterator[dict[str, Any]]:
    """Traces of the two days before, so that the last hour has a usual."""
    now = datetime.now(UTC)
    days = timedelta(days=2)
    for place in range(number):
        at = now - days + place * days / number
        yield next(traces) | {"timestamp": at.isoformat(timespec="milliseconds")}


def _cited(trace: dict[str, Any], rng: random.Random) -> str:
    """Most answers cite; one in fifty a passage that is not there."""
    answer = str(trace.get("answer") or "")
    passages = len(trace.get("passages") or [])
    if not answer or rng.random() < 0.2:
        return answer
    place = passages + 5 if rng.random() < 0.02 else rng.randint(1, max(1, passages))
    return f"{answer.rstrip('.')} [{place}]."


def settings(folder: Path, judge: str, ports: tuple[int, int]) -> Path:
    """Everything on that the dashboard shows."""
    tree = {
        "segments": ["model"],
        "goals": {"grounded": 0.85, "answered": 0.9, "fast": 8},
        "http": {"otlp_port": ports[0], "metrics_port": ports[1]},
        "state": {"path": str(folder / "s.sqlite")},
        "judge": {
            "base_url": judge,
            "model": "stub",
            "input_usd_per_million": 0.15,
            "output_usd_per_million": 0.6,
            "concurrency": 8,
            "probes": {"enabled": False},
        },
        "sampling": {"judge": 0.8},
    }
    path = folder / "config.json"
    path.write_text(json.dumps(tree))
    return path


@contextmanager
def watched(folder: Path, *, interval: int = 2) -> Iterator[World]:
    """An agent with two days of traces and some poison, ready for more; Prometheus scrapes it."""
    with ExitStack() as stack:
        judge = stack.enter_context(stub_judge(0.02))
        ports = (free_port(), free_port())
        config = settings(folder, judge.base_url, ports)
        first = folder / "first.jsonl"
        traces = sample(seed=1)
        lines = [json.dumps(trace) for trace in _past(traces, 240)]
        first.write_text("\n".join([*lines, "no json", '{"service": "x"}']) + "\n")
        agent = start(folder, "run", "--config", config, "--replay", first)
        stack.callback(agent.wait, 20)
        stack.callback(agent.kill)
        metrics = f"http://127.0.0.1:{ports[1]}"
        targets = json.dumps([f"127.0.0.1:{ports[1]}"])
        text = CONFIG.format(interval=interval, rules=RULES, targets=targets)
        ask = stack.enter_context(prometheus(folder, text))
        world = World(ask, metrics, f"http://127.0.0.1:{ports[0]}")
        stack.callback(world.close)

        def ready() -> bool:
            assert agent.poll() is None, (folder / "talk.txt").read_text()[-2000:]
            own = f'ragmeter_ready{{instance="127.0.0.1:{ports[1]}"}}'
            return scraped(world, own) == "1" and world.listens()

        until(ready)
        yield world


def scraped(world: World, query: str) -> str:
    """The first value of an instant query, "" for none."""
    try:
        found = world.ask.get("/query", params={"query": query}).json()["data"]["result"]
    except (httpx.TransportError, KeyError, ValueError):
        return ""
    return str(found[0]["value"][1]) if found else ""
