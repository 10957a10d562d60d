"""The process behind `benchmarks.acceptance --process`: an agent, a judge that knows, `/metrics`.

`ragmeter run --replay` reads traces of many services and asks a server that answers with the truth
about each trace. What it exports is compared with the truth about all traffic of the window.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.acceptance_report import LEAST, START, Cell, Report, uniform_width
from tests.ports import free_port
from tests.scorers.judge.stub_answers import Messages
from tests.scorers.judge.stub_judge import StubJudge

__all__ = ["run_services"]

METRICS = ("answered", "faithfulness")
CLAIMS = 4
TRACES = 600  # of a service
RATES = (0.1, 0.2, 0.5)
WORDS = tuple(f"{a}{b}" for a in ("mar", "tol", "ven", "rik", "sab", "dun") for b in "aeiouy")

# Values of all traffic by (service, metric, gauge), beside the expected number judged.
Truths = dict[tuple[str, str, str], list[float]]


def answer(messages: Messages, schema: Mapping[str, Any]) -> object:
    """The truth, which the answer carries: whether it is an attempt, how many claims hold."""
    found = re.search(r"case a(\d)k(\d)", "".join(message["content"] for message in messages))
    attempt, held = (int(found[1]), int(found[2])) if found else (1, CLAIMS)
    if "claims" in schema.get("properties", {}):
        claims = [
            {
                "claim": f"claim {number}",
                "support": "supported" if number < held else "unsupported",
                "relevance": "relevant",
            }
            for number in range(CLAIMS)
        ]
        return {"claims": claims, "groundedness": "4", "correctness": "4"}
    (name,) = schema["properties"]
    return {name: "answered" if attempt else "none"}


def _sentence(rng: random.Random) -> str:
    return f"The {' '.join(rng.choice(WORDS) for _ in range(7))}."


def _service(name: str, rng: random.Random, truths: Truths) -> Iterator[dict[str, Any]]:
    """An hour of traffic, half of it in the last five minutes; a new model version on the way."""
    p = rng.uniform(0.8, 0.98)
    miss = rng.uniform(0.02, 0.15)
    flag = rng.uniform(0.005, 0.04)
    whole = rng.uniform(0.8, 0.98)
    for number in range(TRACES):
        late = number >= TRACES // 2
        at = START + 3599 - (rng.uniform(0, 270) if late else rng.uniform(900, 3400))
        good = rng.random() < p
        abstained = rng.random() < flag if good else rng.random() >= miss
        held = CLAIMS if rng.random() < whole else rng.randrange(CLAIMS)
        failed = rng.random() < 0.03
        passage = [_sentence(rng) for _ in range(CLAIMS)]
        said = [text if i < held else _sentence(rng) for i, text in enumerate(passage)]
        if not failed:
            for gauge in ("5m", "1h", "24h") if late else ("1h", "24h"):
                truths.setdefault((name, "answered", gauge), []).append(float(good))
                if not abstained:
                    share = held / CLAIMS
                    truths.setdefault((name, "faithfulness", gauge), []).append(share)
        yield {
            "trace_id": f"{name}-{number}",
            "service": name,
            "timestamp": at,
            "query": f"What is known of case {number}?",
            "passages": [{"id": "p1", "text": " ".join(passage)}],
            "answer": f"{' '.join(said)} This is case a{int(good)}k{held}.",
            "abstained": abstained,
            "status": "error" if failed else "ok",
            "model": "m2" if at > START + 3500 else "m1",
        }


async def _scrape(services: Mapping[str, float], lines: list[str], folder: Path) -> str:
    """Replay the lines in an agent of its own and return what it exports."""
    port = free_port()
    (folder / "traces.jsonl").write_text("\n".join(lines))
    async with StubJudge(answer=answer, keep_bodies=False) as judge:
        config = {
            "judge": {
                "base_url": judge.base_url,
                "model": "stub",
                "metrics": ["answered", "claims"],
                "probes": {"enabled": False},
            },
            "sampling": {"services": {name: {"judge": rate} for name, rate in services.items()}},
            "http": {"otlp_port": free_port(), "metrics_port": port},
            "limits": {"services": len(services) + 1},
            "state": {"path": str(folder / "s.sqlite")},
        }
        (folder / "config.json").write_text(json.dumps(config))
        command = [sys.executable, "-m", "ragmeter", "run"]
        command += ["-c", str(folder / "config.json"), "--replay", str(folder / "traces.jsonl")]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        try:
            async for line in process.stderr:
                if b"serving until" in line:
                    break
            else:
                raise SystemExit("the agent ended before it served")
            async with httpx.AsyncClient(timeout=60) as client:
                text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
            process.send_signal(signal.SIGTERM)
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
    return text


def run_services(report: Report, number: int, seed: int) -> None:
    """Add a row for `number` services of one agent to the report."""
    rng = random.Random(seed)
    truths: Truths = {}
    rates = {f"s{index}": RATES[index % len(RATES)] for index in range(number)}
    traces = [trace for name in rates for trace in _service(name, rng, truths)]
    traces.sort(key=lambda trace: trace["timestamp"])
    with tempfile.TemporaryDirectory() as folder:
        text = asyncio.run(_scrape(rates, [json.dumps(trace) for trace in traces], Path(folder)))
    gauges: dict[tuple[str, str, str, str], dict[str, float]] = {}
    scored: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sample.labels
            found = re.fullmatch(rf"rag_({'|'.join(METRICS)})_(\w+)", sample.name)
            if found and "window" in labels:
                key = (labels["service"], found[1], labels["scorer"], labels["window"])
                gauges.setdefault(key, {})[found[2]] = sample.value
            if sample.name == "ragmeter_results_total" and labels["scorer"] == "judge":
                scored[labels["metric"], labels["state"]] = sample.value
    chance = np.random.default_rng(seed)
    # strata are judged more often than their rate says: by how much, over all services
    more = {
        metric: scored[metric, "scored"]
        / sum(rates[name] * len(truths[name, metric, "24h"]) for name in rates)
        for metric in METRICS
    }
    for service, rate in rates.items():
        for (name, metric, scorer, gauge), values in gauges.items():
            kind = "ratio" if metric == "answered" else "mean"
            if name != service or kind not in values:
                continue
            inside = np.array(truths[service, metric, gauge])
            judged = round(rate * len(inside) * more[metric])
            if judged < LEAST:
                continue
            interval = (values[kind], values["ci_lower"], values["ci_upper"])
            row = "process" if scorer != "builtin" else "process: the rule against the truth"
            nominal = round(rate * TRACES / (2 if gauge == "5m" else 1))
            cell = Cell(row, f"{kind}s".replace("ratio", "rate"), scorer, gauge, metric, nominal)
            plain = uniform_width(chance, inside, judged)
            report.add(cell, float(inside.mean()), interval, judged, plain)
        report.close_run()
