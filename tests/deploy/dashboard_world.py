"""What the dashboards look at: a real agent with a stub judge under traffic, and a Prometheus.

`watched` starts all of it. The traffic is the bundled traces again and again, each with an id and
a time of its own, and with what they lack: timings, tokens, citations, failures.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from werkzeug import Request, Response

from tests.crash import start
from tests.deploy.tools import ROOT
from tests.http_stub import http_stub
from tests.ports import free_port
from tests.prometheus_server import prometheus
from tests.scorers.judge.stub_process import stub_judge
from tests.waiting import until

__all__ = ["World", "sample", "scraped", "watched"]

RULES = ROOT / "helm" / "ragmeter" / "files" / "ragmeter.rules.yaml"
SPANS = ROOT / "tests" / "data" / "otlp" / "langfuse-langfuse-sdk-generation.otlp.json"
CONFIG = """
global: {{scrape_interval: {interval}s, evaluation_interval: {interval}s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: ragmeter
    static_configs: [{{targets: {targets}}}]
"""


JUDGED = ("relevance", "answered", "citations", "nuggets")  # as by default


class World:
    """`ask` is Prometheus' API; traces go to `traces`, spans to `spans`."""

    def __init__(self, ask: httpx.Client, metrics: str, traffic: str) -> None:
        self.ask = ask
        self.metrics = metrics
        self._traffic = httpx.Client(base_url=traffic, timeout=30)

    def send(self, traces: Sequence[dict[str, Any]]) -> None:
        self._traffic.post("/v1/rag/traces", json=list(traces)).raise_for_status()

    def spans(self) -> None:
        """A request as an instrumented application sends it: counted, whatever its age."""
        headers = {"Content-Type": "application/json"}
        self._traffic.post("/v1/traces", content=SPANS.read_bytes(), headers=headers)

    def spoken_of(self, traces: Sequence[dict[str, Any]]) -> None:
        """Labels of people for these traces, and what a job has put into the index."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        answer = {
            "helpful": True,
            "proper_action": True,
            "response_on_topic": True,
            "incomplete": False,
        }
        labels = [
            {"trace_id": trace["trace_id"], "timestamp": now, "scorer": "people", "answer": answer}
            for trace in traces
        ]
        self._traffic.post("/v1/feedback", json=labels).raise_for_status()
        event = {
            "schema": "ragmeter.index/1",
            "event_id": uuid.uuid4().hex,
            "service": str(traces[0]["service"]),
            "timestamp": now,
            "index": "kb",
            "index_version": "1",
            "documents": {"processed": 40, "no_chunks": 2},
            "chunks": {"attempted": 100, "embedded": 90, "skipped": {"too_long": 6, "empty": 4}},
            "tokens_per_chunk": {"10": 5, "400": 75, "500": 20},
        }
        self._traffic.post("/v1/index", json=event).raise_for_status()

    def page(self) -> str:
        """What the agent exports now."""
        return httpx.get(f"{self.metrics}/metrics").text

    def intrude(self) -> None:
        """A request as from another site's page: it is refused, and counted."""
        httpx.get(f"{self.metrics}/", headers={"Host": "elsewhere.example"})

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
            if rng.random() < 0.1:  # without texts: most are found by the resolver
                missing = "missing" if rng.random() < 0.3 else "kb"
                trace = trace | {"passages": [{"id": f"{missing}-{rng.randrange(500)}"}]}
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


def _cited(trace: dict[str, Any], rng: random.Random) -> str:
    """Most answers cite; one in fifty a passage that is not there."""
    answer, passages = str(trace.get("answer") or ""), len(trace.get("passages") or [])
    if not answer or rng.random() < 0.2:
        return answer
    place = passages + 5 if rng.random() < 0.02 else rng.randint(1, max(1, passages))
    return f"{answer.rstrip('.')} [{place}]."


def settings(folder: Path, judge: str, sink: str, ports: tuple[int, int]) -> Path:
    """Everything on that the dashboards show."""
    second = {"base_url": judge, "model": "stub-2", "share": 0.5}
    tree = {
        "segments": ["model"],
        "http": {"otlp_port": ports[0], "metrics_port": ports[1]},
        "state": {"path": str(folder / "s.sqlite"), "dead_letters": str(folder / "dead.jsonl")},
        "judge": {
            "base_url": judge,
            "metrics": [*JUDGED, "claims", "facts", "context"],
            "model": "stub",
            "second": second,
            "input_usd_per_million": 0.15,
            "output_usd_per_million": 0.6,
            "concurrency": 8,
            "probes": {"hours": 0.003},  # a second run soon: the first has nothing to compare with
        },
        "sampling": {"judge": 0.8},
        "privacy": {"redact": ["email", {"name": "the", "pattern": r"\bThe\b"}]},
        "alerts": {"webhook_url": f"{sink}/hook"},
        "results_export": {"endpoint": sink},
        "resolvers": {"sources": [{"name": "docs", "url": f"{sink}/docs/{{id}}"}]},
    }
    path = folder / "config.json"
    path.write_text(json.dumps(tree))
    return path


def _sink(request: Request) -> Response:
    """Takes every notification and result, and has a text for any passage but the missing ones."""
    if request.method == "POST":
        return Response()
    found = 404 if "missing" in request.path else 200
    text = b'{"text": "A text of some words."}'
    return Response(text, found, content_type="application/json")


@contextmanager
def watched(
    folder: Path, *, interval: int = 2, recorded: bytes = b"", others: Sequence[str] = ()
) -> Iterator[World]:
    """An agent that replays poison and 60 traces and is ready for more; Prometheus scrapes it,
    `others`, and a server that answers with `recorded`."""
    with ExitStack() as stack:
        judge = stack.enter_context(stub_judge(0.02))
        sink = stack.enter_context(http_stub(_sink)).url_for("")
        targets = list(others)
        if recorded:
            page = Response(recorded, content_type="text/plain; version=0.0.4")
            replayed = stack.enter_context(http_stub(lambda _: page))
            targets.append(f"127.0.0.1:{replayed.port}")
        ports = (free_port(), free_port())
        config = settings(folder, judge.base_url, sink, ports)
        first = folder / "first.jsonl"
        traces = sample(seed=1)
        lines = [json.dumps(next(traces)) for _ in range(60)]
        first.write_text("\n".join([*lines, "no json", '{"service": "x"}']) + "\n")
        agent = start(folder, "run", "--config", config, "--replay", first)
        stack.callback(agent.wait, 20)
        stack.callback(agent.kill)
        metrics = f"http://127.0.0.1:{ports[1]}"
        targets.insert(0, f"127.0.0.1:{ports[1]}")
        text = CONFIG.format(interval=interval, rules=RULES, targets=json.dumps(targets))
        ask = stack.enter_context(prometheus(folder, text))
        world = World(ask, metrics, f"http://127.0.0.1:{ports[0]}")
        stack.callback(world.close)

        def ready() -> bool:
            assert agent.poll() is None, (folder / "talk.txt").read_text()[-2000:]
            own = f'ragmeter_ready{{instance="127.0.0.1:{ports[1]}"}}'
            return scraped(world, own) == "1" and world.listens()

        until(ready)
        world.intrude()
        yield world


def scraped(world: World, query: str) -> str:
    """The first value of an instant query, "" for none."""
    try:
        found = world.ask.get("/query", params={"query": query}).json()["data"]["result"]
    except (httpx.TransportError, KeyError, ValueError):
        return ""
    return str(found[0]["value"][1]) if found else ""
