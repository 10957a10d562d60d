"""One question has one number, with the same doubt, wherever it is asked: terminal, page, JSON API,
`/metrics` and the report of a file."""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.test_watch import ragmeter
from tests.crash import serving, settings_file
from tests.ports import free_port
from tests.scorers.judge.stub_process import StubProcess, stub_judge
from tests.traces import START, trace_line
from tests.waiting import PATIENCE, until

TRACES = 600
SESSION = 6  # requests of a session, of which every eighth fails as a whole
LABELLED = 3  # every third request, which people were given with the probability that this makes
SOURCES = {
    "works": "every request",
    "fast": "every request",
    "answered": "labels",
    "grounded": "labels",
    "retrieved": "labels",
    "cited": "verdicts of the judge",
    "complete": "verdicts of the judge",
    "cost": "every request",
}
"""What the number of each question rests on here. The judge sees every trace: an agent that draws
some of them and a report of all of them rest on different samples."""


@pytest.fixture(scope="module")
def judge() -> Iterator[StubProcess]:
    """Yield a judge that gives the same verdict each time that it is asked the same."""
    with stub_judge() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, judge: StubProcess) -> Path:
    """Return a folder with a configuration, the traces of one hour, and labels of some."""
    folder = tmp_path_factory.mktemp("one")
    lines, labels = [], []
    for number in range(TRACES):
        session = number // SESSION
        at = START + number * 3000 / TRACES
        failed = session % 8 == 0
        lines.append(
            trace_line(
                number,
                timestamp=at,
                status="error" if failed else "ok",
                query=f"How do I reset password {number}?",  # each is a question of its own
                tags={"session_id": f"s{session}"},
                timings={"total": 1 + session % 20 / 10},
                answer="I do not know." if session % 5 == 1 else f"Click on {number} [1].",
                usage={"cost_usd": 0.001 + number % 7 / 1000},
            )
        )
        if number % LABELLED == 0 and not failed:
            verdict = {"answered": session % 5 != 1, "relevant": number % 4 != 0}
            if verdict["answered"]:
                verdict["grounded"] = number % 5 != 0
            label = {"trace_id": f"t{number}", "timestamp": at, "scorer": "people"}
            labels.append(label | {"probability": 1 / LABELLED, "verdict": verdict})
    (folder / "traces.jsonl").write_bytes(b"\n".join(lines))
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    config = settings_file(folder, judge.base_url, otlp_port=free_port(), metrics_port=free_port())
    tree = json.loads(config.read_text())
    tree |= {"models": {"cpu_share": 0}, "sampling": {"judge": 1}}
    # not of what people are asked: a source chosen before the labels came is kept for a day
    tree["judge"]["metrics"] = ["citations", "nuggets"]
    config.write_text(json.dumps(tree))
    return folder


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[str]:
    """Yield the address of an agent that has replayed the traces and has all verdicts."""
    config = folder / "config.json"
    url = f"http://127.0.0.1:{json.loads(config.read_text())['http']['metrics_port']}"
    with (
        serving(config, folder / "traces.jsonl"),
        httpx.Client(trust_env=False, timeout=PATIENCE) as client,
    ):
        labels = (folder / "labels.jsonl").read_bytes()
        client.post(f"{url}/v1/feedback", content=labels).raise_for_status()
        until(lambda: judged(client.get(f"{url}/metrics").text) == TRACES)
        yield url


def judged(metrics: str) -> float:
    """Return how many traces have a result of the judge about nuggets, its last question."""
    pattern = r'^ragmeter_results_total\{metric="nugget_vital".* (\S+)$'
    return sum(float(count) for count in re.findall(pattern, metrics, re.M))


def report(folder: Path) -> str:
    """Return what `ragmeter report` prints of the same traces, scored in a file."""
    config, scores = str(folder / "config.json"), str(folder / "scores.jsonl")
    for command in (
        (
            "score",
            str(folder / "traces.jsonl"),
            "--feedback",
            str(folder / "labels.jsonl"),
            "-o",
            scores,
            "-c",
            config,
        ),
        ("report", scores, "-c", config),
    ):
        done: subprocess.CompletedProcess[str] = ragmeter(*command)
        assert done.returncode == 0, done.stderr
    return done.stdout


def number_of(text: str, question: str) -> str:
    """Return what a table says of a question: `88 % (83 to 92)`."""
    number = r"\$?[\d.,]+ (?:%|s|/ 1,000) \([\d.]+ to [\d.]+\)"
    found = re.search(rf"^\W*{question}\W+?({number})", text, re.M)
    assert found is not None, f"{question}: {text}"
    return found[1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_question_has_one_number_on_every_surface(folder: Path, agent: str) -> None:
    with httpx.Client(trust_env=False, timeout=PATIENCE, base_url=agent) as client:
        page = html.unescape(re.sub(r"<[^>]+>", " ", client.get("/service/bot").text))
        document: dict[str, Any] = client.get("/api/questions.json").json()
        metrics = client.get("/metrics").text
    page = " ".join(page.replace("\u202f", " ").split())
    terminal = ragmeter("watch", "--url", agent)
    assert terminal.returncode == 0, terminal.stderr
    printed = report(folder)
    answers = {one["question"]: one for one in document["services"]["bot"]["questions"]}
    assert list(answers) == list(SOURCES)
    for question, source in SOURCES.items():
        notified = number_of(terminal.stdout, question)
        assert number_of(printed, question) == notified, "report"
        value, interval = notified.replace("/ 1", "per 1").rstrip(")").split(" (")
        shown = rf"\b{question} (?:\S (?:moved|bad) )?{re.escape(f'{value} {interval}')}\b"
        assert re.search(shown, page)
        assert answers[question]["source"].endswith(source)
        level = answers[question]["level"]
        ends = [level[name] for name in ("value", "lower", "upper")]
        scale = {"share": 100, "seconds": 1, "usd": 1000}[answers[question]["unit"]]
        digits = [float(one) for one in re.findall(r"[\d.]+", notified.replace("/ 1,000", ""))]
        assert digits == pytest.approx(
            [scale * one for one in ends], rel=0.006, abs=0.51 if scale == 100 else None
        )
        gauges = {
            "share": [f"rag_{question}{end}_ratio{{" for end in ("", "_lower", "_upper")],
            "seconds": ['rag_latency_seconds{stage="total",quantile="0.95",'],
            "usd": ["rag_cost_per_answer_usd{"],
        }
        for name, end in zip(gauges[answers[question]["unit"]], ends, strict=False):
            series = name.replace("{", '{service="bot",') + 'window="1h"}'
            found = re.search(rf"^{re.escape(series)} (\S+)$", metrics, re.M)
            assert found is not None, name
            assert float(found[1]) == pytest.approx(end)
