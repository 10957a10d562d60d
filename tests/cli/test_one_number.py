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
from tests.traces import START, trace_line
from tests.waiting import PATIENCE

TRACES = 600
SESSION = 6  # requests of a session, of which every eighth fails as a whole
ASKED = ("works", "fast", "answered")
"""The questions that every request answers: a report judges or models another sample than an agent,
unless it reads what the agent has stored."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a configuration and the traces of one hour."""
    folder = tmp_path_factory.mktemp("one")
    lines = []
    for number in range(TRACES):
        session = number // SESSION
        failed = session % 8 == 0
        lines.append(
            trace_line(
                number,
                timestamp=START + number * 3000 / TRACES,
                status="error" if failed else "ok",
                tags={"session_id": f"s{session}"},
                timings={"total": 1 + session % 20 / 10},
                answer="I do not know." if session % 5 == 1 else f"Click on {number} [1].",
            )
        )
    (folder / "traces.jsonl").write_bytes(b"\n".join(lines))
    config = settings_file(folder, otlp_port=free_port(), metrics_port=free_port())
    tree = json.loads(config.read_text()) | {"models": {"cpu_share": 0}}
    config.write_text(json.dumps(tree))
    return folder


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[str]:
    """Yield the address of an agent that has replayed the traces."""
    config = folder / "config.json"
    with serving(config, folder / "traces.jsonl"):
        yield f"http://127.0.0.1:{json.loads(config.read_text())['http']['metrics_port']}"


def report(folder: Path) -> str:
    """Return what `ragmeter report` prints of the same traces, scored in a file."""
    config, scores = str(folder / "config.json"), str(folder / "scores.jsonl")
    for command in (
        ("score", str(folder / "traces.jsonl"), "-o", scores, "-c", config),
        ("report", scores, "-c", config),
    ):
        done: subprocess.CompletedProcess[str] = ragmeter(*command)
        assert done.returncode == 0, done.stderr
    return done.stdout


def number_of(text: str, question: str) -> str:
    """Return what a table says of a question: `88 % (83 to 92)`."""
    found = re.search(rf"^\W*{question}\W+([\d.,]+ (?:%|s) \([\d.]+ to [\d.]+\))", text, re.M)
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
    for question in ASKED:
        told = number_of(terminal.stdout, question)
        assert number_of(printed, question) == told, "report"
        value, interval = told.rstrip(")").split(" (")
        shown_state = r"(?:\S (?:moved|bad) )?"
        assert re.search(rf"\b{question} {shown_state}{re.escape(f'{value} {interval}')}\b", page)
        level = answers[question]["level"]
        ends = [level[name] for name in ("value", "lower", "upper")]
        scale = 100 if value.endswith("%") else 1
        shown = [float(one) for one in re.findall(r"[\d.]+", told)]
        assert shown == pytest.approx([scale * one for one in ends], rel=0.006, abs=0.51)
        if scale == 100:
            for name, end in zip(("", "_lower", "_upper"), ends, strict=True):
                gauge = rf'^rag_{question}{name}_ratio\{{service="bot",window="1h"\}} (\S+)$'
                found = re.search(gauge, metrics, re.M)
                assert found is not None, gauge
                assert float(found[1]) == pytest.approx(end)
