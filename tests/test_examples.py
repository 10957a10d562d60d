"""The bundled traces are what their notice says, and the example producer sends valid traces."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytest_httpserver import HTTPServer
from ragmeter.trace import Trace

from examples import demo, mtrag
from tests.tables import each_row
from tests.waiting import PATIENCE

EXAMPLES = Path(__file__).parents[1] / "examples"
MAX_BYTES = 3_000_000  # a clone stays quick


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    lines = (EXAMPLES / "mtrag.jsonl").read_bytes().split(b"\n")
    assert lines.pop() == b""
    return [Trace.model_validate_json(line) for line in lines]


@pytest.fixture(scope="module")
def notice() -> str:
    return (EXAMPLES / "NOTICE.md").read_text(encoding="utf-8")


def row(**changes: Any) -> dict[str, Any]:
    """A row of the data folder, in its shape."""
    return {
        "trace_id": "mtrag_human:1:gpt-4o",
        "query": "When does it open?",
        "passages": [
            {"id": "7-1", "text": "Opens at nine.\n", "rank": 1, "title": " Opening hours\n"},
            {"id": "7-2", "text": "Closed on Sundays.", "rank": 2},
        ],
        "answer": "At nine.",
        "model": "GPT-4.0",
        "history": [{"role": "user", "text": "Hello"}],
        "labels": {"answerability": "ANSWERABLE", "normalized": {"hallucinated": False}},
        "meta": {"collection": "mt-rag-clapnq"},
        **changes,
    }


def government(title: str, text: str = "Report it.") -> dict[str, Any]:
    passage = {"id": "p", "text": text, "rank": 1, "title": title}
    return row(meta={"collection": "mt-rag-govt"}, passages=[passage])


def test_every_bundled_trace_is_valid_and_has_a_model(traces: list[Trace]) -> None:
    assert all(trace.model and trace.query and trace.answer for trace in traces)
    assert all(trace.passages is not None for trace in traces)


def test_bundled_file_is_small(traces: list[Trace]) -> None:
    assert (EXAMPLES / "mtrag.jsonl").stat().st_size < MAX_BYTES
    assert len(traces) > 100


def test_trace_ids_are_unique(traces: list[Trace]) -> None:
    assert len({trace.trace_id for trace in traces}) == len(traces)


def test_timestamps_rise_strictly_within_one_hour(traces: list[Trace]) -> None:
    times = [trace.timestamp for trace in traces]
    assert all(before < after for before, after in pairwise(times))
    assert times[-1] == mtrag.END
    assert times[0] > mtrag.END - timedelta(hours=1)


def test_no_quantity_is_made_up(traces: list[Trace]) -> None:
    assert all(trace.timings is None and trace.usage is None for trace in traces)
    assert all(p.score is None for trace in traces for p in trace.passages or [])


def test_models_are_mixed_over_the_hour(traces: list[Trace]) -> None:
    half = len(traces) // 2
    for part in (traces[:half], traces[half:]):
        assert len({trace.model for trace in part}) == 4
    chat = Counter(trace.model for trace in traces if trace.service == "mtrag-chat")
    assert len(set(chat.values())) == 1  # every model answers the same questions


def test_notice_gives_the_numbers_of_the_file(traces: list[Trace], notice: str) -> None:
    assert f"holds {len(traces)} traces" in notice
    for service, number in Counter(trace.service for trace in traces).items():
        line = next(line for line in notice.splitlines() if line.startswith(f"| `{service}`"))
        assert f"| {number} |" in line
    for domain, number in Counter(trace.tags["domain"] for trace in traces).items():
        assert f"| `{domain}` | {number} |" in notice


def test_wikipedia_passages_name_their_article(traces: list[Trace]) -> None:
    for trace in traces:
        if trace.tags["domain"] == "wikipedia":
            assert all((p.metadata or {}).get("title") for p in trace.passages or [])


def test_conversion_keeps_texts_whole_and_adds_nothing() -> None:
    converted = mtrag.convert(row(), "mtrag-chat", mtrag.END)
    assert converted == {
        "trace_id": "mtrag_human:1:gpt-4o",
        "service": "mtrag-chat",
        "timestamp": "2026-01-15T12:00:00.000Z",
        "query": "When does it open?",
        "history": [{"role": "user", "text": "Hello"}],
        "passages": [
            {
                "id": "7-1",
                "text": "Opens at nine.\n",
                "rank": 1,
                "metadata": {"title": "Opening hours"},
            },
            {"id": "7-2", "text": "Closed on Sundays.", "rank": 2},
        ],
        "answer": "At nine.",
        "model": "GPT-4.0",
        "tags": {"domain": "wikipedia", "answerability": "answerable", "human_faithful": "yes"},
    }


def test_unlabelled_faithfulness_is_no_tag() -> None:
    labels = {"answerability": "UNANSWERABLE", "normalized": {"abstained": True}}
    tags = mtrag.convert(row(labels=labels), "s", mtrag.END)["tags"]
    assert "human_faithful" not in tags


@pytest.mark.parametrize(
    "kept",
    [
        row(),
        government("Newsroom | Internal Revenue Service", "Write to phishing@irs.gov."),
        row(meta={"collection": "govt"}, passages=[]),
    ],
)
def test_clear_terms_are_kept(kept: dict[str, Any]) -> None:
    assert mtrag.doubtful(kept) is None


@each_row(
    ("dropped", "reason"),
    [
        (row(meta={"collection": "mt-rag-fiqa-beir"}), "finance"),
        (government("Common Scams | Danville, CA"), "government"),
        (government("Probe - NASA", "Written at JPL."), "government"),
        (row(answer="Ask jane.doe@nasa.gov"), "address"),
        (row(history=[{"role": "agent", "text": "Ask jdoe@town.gov"}]), "address"),
    ],
)
def test_doubtful_rows_are_dropped_with_a_reason(dropped: dict[str, Any], reason: str) -> None:
    assert reason in (mtrag.doubtful(dropped) or "")


def test_unknown_collection_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown collection 'banking'"):
        mtrag.doubtful(row(meta={"collection": "banking"}))


def test_schedule_depends_on_the_ids_alone() -> None:
    names = [f"t{i}" for i in range(50)]
    plan = mtrag.schedule(names)
    assert plan == mtrag.schedule(reversed(names))
    assert list(plan) != names
    assert max(plan.values()) == mtrag.END


def test_main_writes_valid_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finance = row(trace_id="x", meta={"collection": "fiqa"})
    unlabelled = {"answerability": "PARTIAL", "normalized": {}}
    sets = {
        "grounding_mtrag_human": [row(), finance],
        "abstention_mtrag_un": [row(trace_id="u", labels=unlabelled)],
    }
    for name, rows in sets.items():
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as out:
            out.writelines(json.dumps(item) + "\n" for item in rows)
    out_file = tmp_path / "out.jsonl"
    assert mtrag.main(["--data", str(tmp_path), "--out", str(out_file)]) == 0
    written = [Trace.model_validate_json(line) for line in out_file.read_bytes().splitlines()]
    assert {(trace.trace_id, trace.service) for trace in written} == {
        ("mtrag_human:1:gpt-4o", "mtrag-chat"),
        ("u", "mtrag-unanswerable"),
    }
    assert "left out 1: finance" in capsys.readouterr().err


def test_producer_sends_one_trace_and_a_gzipped_batch(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/v1/rag/traces", method="POST").respond_with_data(b"")
    url = httpserver.url_for("/v1/rag/traces")
    command = [sys.executable, str(EXAMPLES / "producer.py"), url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert result.returncode == 0, result.stderr
    one, batch = (request for request, _ in httpserver.log)
    assert one.headers["content-type"] == "application/json"
    assert batch.headers["content-encoding"] == "gzip"
    lines = gzip.decompress(batch.get_data()).splitlines()
    sent = [Trace.model_validate_json(line) for line in [one.get_data(), *lines]]
    assert len({trace.trace_id for trace in sent}) == 4
    assert f"sent {len(sent)} traces" in result.stdout


def test_prometheus_scrapes_the_default_metrics_port() -> None:
    config = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["127.0.0.1:9464"]}]


DEMO_END = datetime(2026, 1, 15, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def day() -> list[Trace]:
    return [Trace.model_validate(trace) for trace in demo.stage(DEMO_END)]


def test_the_day_of_the_demo_is_the_same_each_time_and_ends_when_it_is_said_to(
    day: list[Trace],
) -> None:
    again = list(demo.stage(DEMO_END + timedelta(days=3)))
    assert [(trace.trace_id, trace.query, trace.status) for trace in day] == [
        (trace["trace_id"], trace["query"], trace["status"]) for trace in again
    ]
    times = [trace.timestamp for trace in day]
    assert times == sorted(times)
    assert timedelta(0) < DEMO_END - times[-1] < timedelta(minutes=5)
    assert timedelta(hours=23) < DEMO_END - times[0] <= timedelta(days=1)
    assert f"{len(day):,} questions" in (EXAMPLES.parent / "README.md").read_text("utf-8")


def test_the_texts_of_the_demo_are_those_of_the_source(
    day: list[Trace], traces: list[Trace]
) -> None:
    sources = {trace.trace_id: trace for trace in traces}
    for trace in day:
        source = sources[trace.tags["answer_of"]]
        assert (trace.query, trace.history, trace.passages) == (
            source.query,
            source.history,
            source.passages,
        )
        assert trace.answer == (source.answer if trace.status == "ok" else None)
        assert (trace.model == source.model) == (trace.model == demo.RAW)


def test_the_generator_is_swapped_and_then_requests_fail(day: list[Trace]) -> None:
    for trace in day:
        left = DEMO_END - trace.timestamp
        assert trace.model == (demo.RAW if left <= demo.SWAP else demo.EDITED)
        assert trace.status == "ok" or left <= demo.OUTAGE
    outage = [trace for trace in day if DEMO_END - trace.timestamp <= demo.OUTAGE]
    assert 0.3 < sum(trace.status != "ok" for trace in outage) / len(outage) < 0.5


def test_the_page_on_the_demo_says_how_many_answers_people_called_unfaithful(
    day: list[Trace],
) -> None:
    verdicts = {(trace.model, trace.query): trace.tags["human_faithful"] for trace in day}
    bad = Counter(model for (model, _), verdict in verdicts.items() if verdict == "no")
    text = " ".join((EXAMPLES / "README.md").read_text(encoding="utf-8").split())
    assert len(verdicts) == 2 * 24
    assert f"people called {bad[demo.EDITED]} unfaithful before and {bad[demo.RAW]} after" in text


def test_people_label_what_was_answered_with_the_probability_they_say() -> None:
    staged = {trace["trace_id"]: trace for trace in demo.stage(DEMO_END)}
    given = list(demo.labels(list(staged.values())))
    answered = sum(trace["status"] == "ok" for trace in staged.values())
    assert 0.07 < len(given) / answered < 0.13
    for label in given:
        verdict = staged[label["trace_id"]]["tags"]["human_faithful"]
        assert label["verdict"] == {"grounded": verdict == "yes"}
        assert label["probability"] == demo.LABELLED


def test_the_recorded_judge_says_nothing_that_was_not_recorded(notice: str) -> None:
    rows = [json.loads(line) for line in demo.VERDICTS.read_text("utf-8").splitlines()]
    assert f"has {len(rows)} verdicts" in notice
    with demo.RecordedJudge() as judge:
        threading.Thread(target=judge.serve_forever, args=(0.02,), daemon=True).start()
        user = (
            "[[BEGIN query 0]]\nNew?\n[[END query 0]]\n[[BEGIN passage 0]]\nNo.\n[[END passage 0]]"
        )
        body = json.dumps({"messages": [{"role": "user", "content": user}]}).encode()
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"{judge.base_url}/chat/completions", body, timeout=PATIENCE)
        refused.value.close()
        assert judge.missing == [user]
        judge.shutdown()
