"""`ragmeter report` as a command: what it reads, writes, refuses and says."""

from __future__ import annotations

import asyncio
import csv
import gzip
import json
import os
import statistics
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.exports import render_report
from ragmeter.app.settings import load_settings
from ragmeter.config.settings import Settings
from ragmeter.core.errors import UsageError
from ragmeter.offline.report.command import ReportOptions, convert_to_open_rag_eval, run_report
from ragmeter.offline.report.open_rag_eval import COLUMNS
from ragmeter.offline.score_file import score_file

from tests.cli.test_main import ragmeter
from tests.offline.report.recorded import FOREIGN
from tests.scored import line_dict, result
from tests.traces import trace_dict

SETTINGS: Settings = load_settings(environ={})


def scores(path: Path, values: list[float], **more: Any) -> Path:
    """Traces t0, t1, ... with their grounding."""
    lines = [json.dumps(line_dict(n, result("grounding", v), **more)) for n, v in enumerate(values)]
    path.write_text("\n".join(lines) + "\n")
    return path


def shown(
    capfd: pytest.CaptureFixture[str], *files: Path, settings: Settings = SETTINGS, **more: Any
) -> tuple[str, list[str]]:
    """What goes to stdout, and what is said."""
    reported: list[str] = []
    run_report(ReportOptions(files, **more), settings, reported.append, render_report)
    return capfd.readouterr().out, reported


def numbers(capfd: pytest.CaptureFixture[str], *files: Path, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown(capfd, *files, form="json", **more)[0])
    return found


def test_two_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = scores(tmp_path / "old.jsonl", [0.1 * n for n in range(8)])
    second = scores(tmp_path / "new.jsonl", [0.1 * n + 0.2 for n in range(8)])
    out, reported = shown(capfd, first, second)
    assert "old: 8 traces, 2025-10-09; new: 8 traces, 2025-10-09" in out
    assert "+0.200" in out
    assert "better" in out
    assert "Fisher" in out
    assert reported == []
    found = numbers(capfd, first, second)
    (compared,) = found["comparisons"]
    assert (compared["method"], compared["pairs"], compared["verdict"]) == ("paired", 8, "better")
    assert compared["p"] == 2 / 2**8
    assert found["runs"][0]["series"][0]["box"]["median"] == pytest.approx(0.35)
    assert numbers(capfd, first, second) == found


def test_the_first_line_says_what_is_better(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = scores(tmp_path / "old.jsonl", [0.1 * n for n in range(8)])
    second = scores(tmp_path / "new.jsonl", [0.1 * n + 0.2 for n in range(8)])
    assert shown(capfd, first, second)[0].splitlines()[0] == (
        "new against old: better on grounding (builtin) by +0.200 [+0.200 … +0.200], p 0.008"
    )
    assert shown(capfd, second, first)[0].startswith("old against new: worse on grounding")
    noise = scores(tmp_path / "noise.jsonl", [0.1 * (n ^ 1) for n in range(8)])
    assert shown(capfd, first, noise)[0].startswith(
        "noise against old: no difference shown on 1 metric\n"
    )


def test_six_metrics_unless_all_are_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl"
    many = [result(name, 0.5) for name in ("grounding", "citation_precision", "citation_recall")]
    lines = [json.dumps(line_dict(number, *many)) for number in range(8)]
    file.write_text("\n".join(lines) + "\n")
    out, _ = shown(capfd, file)
    assert "citation_recall" not in out
    assert "2 more metrics have a value: --all shows them" in out
    out, _ = shown(capfd, file, every=True)
    assert "citation_recall" in out
    assert "--all" not in out
    assert len(numbers(capfd, file)["runs"][0]["series"]) == 3
    # a file without one of the six shows what it has
    few = [json.dumps(line_dict(number, result("citation_recall", 0.5))) for number in range(8)]
    file.write_text("\n".join(few) + "\n")
    assert "citation_recall" in shown(capfd, file)[0]


def test_what_is_always_the_same_is_folded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = scores(tmp_path / "old.jsonl", [0.1 * n for n in range(8)])
    out, _ = shown(capfd, first, scores(tmp_path / "new.jsonl", [0.1 * n for n in range(8)]))
    assert "always the same" not in out
    assert out.startswith("new against old: the same in every score\n")
    assert "the same in every score: grounding (builtin)" in out


def test_another_judge_is_named_as_the_reason_why_nothing_is_compared(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = []
    for name in ("old", "new"):
        score = result("relevance", 1.0, scorer="umbrela", fingerprint=name)
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("\n".join(json.dumps(line_dict(n, score)) for n in range(8)))
    assert shown(capfd, *files)[0].startswith(
        "new against old: scored by another judge or model, so nothing to compare\n"
    )


def test_groups_of_all_runs_have_one_order(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = []
    for name, langs in (("old", "aab"), ("new", "abbc")):
        lines = [line_dict(n, result("error", 0.0), tags={"l": at}) for n, at in enumerate(langs)]
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("\n".join(map(json.dumps, lines)))
    found = numbers(capfd, *files, by="l")["groups"]
    assert [[group["name"] for group in groups] for groups in found] == [
        ["l=a", "l=b"],
        ["l=a", "l=b", "l=c"],
    ]


def test_groups_by_a_tag_with_their_sizes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, html = tmp_path / "a.jsonl", tmp_path / "r.html"
    lines = [
        json.dumps(line_dict(n, result("grounding", n / 10), tags={"lang": "de"} if n else {}))
        for n in range(9)
    ]
    file.write_text("\n".join(lines) + "\n")
    out, _ = shown(capfd, file, by="lang", html=html)
    rows = [line.split() for line in out.splitlines()]
    assert ["grounding", "(builtin)", "lang=de", "8", "8", "0.450"] in [row[:6] for row in rows]
    assert ["no", "lang", "1", "1", "0.000"] in [row[:5] for row in rows]
    assert "lang=de" in html.read_text()
    ((first, second),) = numbers(capfd, file, by="lang")["groups"]
    assert (first["name"], first["traces"]) == ("lang=de", 8)
    assert first["series"][0]["value"] == pytest.approx(0.45)
    assert (second["name"], second["traces"]) == ("no lang", 1)


def test_scores_of_two_values_have_no_quartiles(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, _ = shown(capfd, scores(tmp_path / "a.jsonl", [0.0, 1.0, 1.0, 1.0] * 3))
    row = next(line for line in out.splitlines() if "grounding" in line)
    assert row.count("…") == 1  # the interval alone
    out, _ = shown(capfd, scores(tmp_path / "b.jsonl", [0.0, 1.0, 0.5, 1.0] * 3))
    row = next(line for line in out.splitlines() if "grounding" in line)
    assert row.count("…") == 2


def test_repeated_questions_vary_by_a_number(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl"
    values = {"a": (0.4, 0.6), "b": (0.5, 0.5, 0.5), "c": (1.0,)}
    lines = [
        json.dumps(line_dict(number, result("grounding", value), tags={"question": question}))
        for number, (question, value) in enumerate(
            (question, value) for question, group in values.items() for value in group
        )
    ]
    file.write_text("\n".join(lines) + "\n")
    again = numbers(capfd, file, pair_by="tag:question")["runs"][0]["series"][0]["repeats"]
    assert (again["questions"], again["scores"]) == (2, 5)
    # sample variances .02 and 0; the root of their mean over the mean of both questions
    assert (again["mean"], again["variance"]) == (pytest.approx(0.5), pytest.approx(0.01))
    assert again["variation"] == pytest.approx(0.2)
    out, _ = shown(capfd, file, pair_by="tag:question")
    assert "questions asked again" in out
    assert numbers(capfd, file)["runs"][0]["series"][0]["repeats"] is None


def test_answers_to_the_same_question_are_held_against_each_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = {
        "How long?": ["Refunds take 14 days.", "Refunds take 14 working days.", "14 days"],
        "Really?": ["Yes.", "No.", "..."],
        "Once?": ["Once alone."],
    }
    file = scores(tmp_path / "a.jsonl", [0.5] * 7)
    texts = tmp_path / "traces.jsonl"
    pairs = [(query, answer) for query, answers in asked.items() for answer in answers]
    lines = [
        json.dumps(trace_dict(trace_id=f"t{n}", query=query, answer=answer))
        for n, (query, answer) in enumerate(pairs)
    ]
    texts.write_text("\n".join(lines))
    more: dict[str, Any] = {"pair_by": "query", "traces": texts}
    found = numbers(capfd, file, **more)["runs"][0]["consistency"]
    # the three dots say nothing that could be compared
    assert (found["questions"], found["answers"]) == (2, 5)
    # of each answer against each before it: 4 of 5 and of 4 words, 2 of 2 and of 4, 2 of 2 and of 5
    overlaps = found["overlaps"]
    names = ("precision", "recall", "f")
    each = [[0.8, 1, 1], [1, 0.5, 0.4], [8 / 9, 2 / 3, 4 / 7]]
    for name, values in zip(names, each, strict=True):
        spread = statistics.fmean(values), statistics.pvariance(values)
        # the two answers of one word have no word in common, and one pair has no variance
        assert (
            overlaps["rouge1"][name]
            == overlaps["rouge_l"][name]
            == pytest.approx(
                {
                    "mean": spread[0] / 2,
                    "variance": spread[1],
                    "variation": spread[1] ** 0.5 / spread[0],
                }
            )
        )
    # they have no bigrams at all: 2 of 4 and of 3, 1 of 1 and of 3, none
    means = [overlaps["rouge2"][name]["mean"] for name in names]
    assert means == pytest.approx([0.5, 1 / 3, (4 / 7 + 1 / 2) / 3])
    out, _ = shown(capfd, file, **more)
    assert "consistency_rouge1 (answers)" in out
    # without texts, or where they must not be read, nothing is compared
    assert numbers(capfd, file, pair_by="query")["runs"][0]["consistency"] is None
    none = load_settings(environ={}, overrides={"privacy": {"content": "none"}})
    assert numbers(capfd, file, settings=none, **more)["runs"][0]["consistency"] is None


def test_csv_has_columns_for_tags_and_timings(tmp_path: Path) -> None:
    rows = [
        trace_dict(1, tags={"model": "a", "evil": '=1+1",x'}, timings={"total": 1.5}),
        trace_dict(2, tags={"lang": "de"}, timings={"total": 2.5, "search": 0.5}),
    ]
    source, out = tmp_path / "t.jsonl", tmp_path / "s.csv"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asyncio.run(score_file(source, out, "csv", SETTINGS, print))
    with out.open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["timing:total"], first["timing:search"]) == ("1.5", "")
    assert (second["timing:search"], second["tag:lang"], second["tag:model"]) == ("0.5", "de", "")
    assert (first["tag:model"], first["tag:evil"]) == ("a", '=1+1",x')


def test_a_report_reads_tags_and_timings_of_a_csv(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.csv"
    head = "trace_id,service,timestamp,grounding.builtin,timing:total,tag:a.b"
    rows = [f"t{n},bot,2026-01-15T11:00:00Z,0.25,{n},{'x' if n else ''}" for n in range(30)]
    file.write_text("\n".join([head, *rows]) + "\n")
    found = numbers(capfd, file, by="a.b")
    assert found["runs"][0]["latency"][0]["stage"] == "total"
    assert not any("unknown" in note for note in found["runs"][0]["notes"])
    assert [group["name"] for group in found["groups"][0]] == ["a.b=x", "no a.b"]


def test_page(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = scores(tmp_path / "a.jsonl", [0.1, 0.5, 0.9])
    html = tmp_path / "r.html"
    shown(capfd, file, html=html)
    assert html.read_text().startswith("<!doctype html>")


def test_a_csv_of_ours(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.csv.gz"
    rows = "trace_id,service,timestamp,grounding.builtin,precision_at_k:5.umbrela,nonsense.builtin"
    file.write_bytes(
        gzip.compress(
            f"{rows}\nt1,bot,2026-01-15T11:00:00Z,0.25,0.4,1\nt2,bot,2026-01-15T11:00:00Z,0.75,,1\n"
            "t3,bot,2026-01-15T11:00:00Z,nan,7,\nt4,bot\n".encode()
        )
    )
    found = numbers(capfd, file)["runs"][0]
    series = {(s["metric"], s.get("k")): s for s in found["series"]}
    assert (found["name"], found["traces"]) == ("a", 3)
    assert series["grounding", None]["value"] == pytest.approx(0.5)
    assert series["precision_at_k", 5]["value"] == pytest.approx(0.4)
    notes = " ".join(found["notes"])
    for words in (
        "no probabilities",
        "2 results of unknown",
        "2 values that are none",
        "1 lines unreadable",
    ):
        assert words in notes, notes


def test_a_file_of_open_rag_eval(capfd: pytest.CaptureFixture[str]) -> None:
    found = numbers(capfd, FOREIGN, FOREIGN, pair_by="query")
    run = found["runs"][0]
    assert run["traces"] == 12
    assert any("2 answers a question" in note for note in run["notes"])
    series = {s["metric"]: s for s in run["series"] if "k" not in s}
    # 4 of 12 attempt nothing (0, 4, 8), one evaluation failed
    assert series["answered"]["samples"] == 11
    assert series["answered"]["value"] == pytest.approx(8 / 11)
    with FOREIGN.open(encoding="utf-8", newline="") as file:
        cells = [row["run_1_retrieval_score_mean_umbrela_score"] for row in csv.DictReader(file)]
    graded = [float(cell) for cell in cells if cell]
    again = series["relevance"]["repeats"]
    assert (again["questions"], again["scores"]) == (11, 22)
    consistency = run["consistency"]
    assert (consistency["questions"], consistency["answers"]) == (12, 24)
    assert set(consistency["overlaps"]["rouge2"]) == {"precision", "recall", "f"}
    assert series["relevance"]["value"] == pytest.approx(sum(graded) / 11)
    assert series["nugget_vital"]["reasons"]["unscored"] == {"judge_error": 1, "not_reported": 1}
    assert {item["method"] for item in found["comparisons"]} == {"constant"}
    assert "How do I reset" in series["answered"]["worst"][0]["query"]


def traces(path: Path, number: int, **fields: Any) -> Path:
    lines = [
        json.dumps(trace_dict(**{"trace_id": f"t{n}", "query": f"Question {n}?", **fields}))
        for n in range(number)
    ]
    path.write_text("\n".join(lines))
    return path


def test_pairs_by_question_and_by_tag(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    asked = tmp_path / "traces.jsonl"
    questions = []
    for path, name, lift in ((first, "x", 0.0), (second, "y", 0.3)):
        lines = []
        for n in range(6):
            tags = {"question": f"q{n}"}
            line = line_dict(
                n, result("grounding", n / 10 + lift), trace_id=f"{name}{n}", tags=tags
            )
            lines.append(json.dumps(line))
            query = f"What  is {n}?" if name == "x" else f"what is {n}? "
            questions.append(json.dumps(trace_dict(trace_id=f"{name}{n}", query=query)))
        path.write_text("\n".join(lines))
    asked.write_text("\n".join(questions))
    by: list[dict[str, Any]] = [
        {"pair_by": "query", "traces": asked},
        {"pair_by": "tag:question"},
        {},
        {"pair_by": "query"},
    ]
    found = [numbers(capfd, first, second, **more)["comparisons"][0] for more in by]
    assert [item["method"] for item in found] == ["paired", "paired", "unpaired", "unpaired"]
    assert [item["pairs"] for item in found] == [6, 6, 0, 0]


def test_texts_are_redacted_or_not_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = scores(tmp_path / "a.jsonl", [0.1])
    asked = traces(tmp_path / "t.jsonl", 1, query="I am ann@example.com", answer="Hello")
    out, _ = shown(capfd, file, traces=asked)
    assert "I am ann" in out
    rules = load_settings(environ={}, overrides={"privacy": {"redact": ["email"]}})
    out, _ = shown(capfd, file, traces=asked, settings=rules)
    assert "Hello" in out
    assert "ann@example.com" not in out
    nothing = load_settings(environ={}, overrides={"privacy": {"content": "none"}})
    out, reported = shown(capfd, file, traces=asked, settings=nothing)
    assert "Hello" not in out
    assert any("privacy.content" in line for line in reported)


def foreign(path: Path, answer: str) -> Path:
    """A CSV of open-rag-eval with an answer that hallucinates."""
    parts = json.dumps([{"text": answer, "citations": []}])
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                "query_id",
                "query",
                "run_1_generated_answer",
                "run_1_generation_score_hallucination_score",
            ]
        )
        writer.writerow(["q1", "I am ann@example.com", parts, "0.1"])
    return path


def test_each_run_has_its_own_answers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = foreign(tmp_path / "a.csv", "At nine."), foreign(tmp_path / "b.csv", "At ten.")
    runs = numbers(capfd, *files)["runs"]
    answers = [run["series"][0]["worst"][0]["answer"] for run in runs]
    assert answers == ["At nine.", "At ten."]


def test_texts_of_the_file_itself_are_redacted_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = foreign(tmp_path / "a.csv", "At nine.")
    rules = load_settings(environ={}, overrides={"privacy": {"redact": ["email"]}})
    out, _ = shown(capfd, file, settings=rules)
    assert "At nine." in out
    assert "ann@example.com" not in out
    nothing = load_settings(environ={}, overrides={"privacy": {"content": "none"}})
    out, _ = shown(capfd, file, settings=nothing)
    assert "At nine." not in out


def spans_file(path: Path) -> Path:
    """One answer, with the spans of its detail; nine further traces have none."""
    spans = [
        {
            "start": 10,
            "end": 14,
            "text": "1950",
            "evidence": {"passage_id": "p1", "text": "In 02."},
        },
        {"start": 18, "end": 33, "text": "a@b.example <i>"},
    ]
    detail = {"unsupported": 2, "unsupported_spans": spans}
    lines = [line_dict(0, result("grounding", 0.1, detail=detail))]
    lines += [line_dict(n, result("grounding", 0.5)) for n in range(1, 10)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_worst_traces_quote_what_nothing_supports(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = spans_file(tmp_path / "a.jsonl")
    page = tmp_path / "a.html"
    out, _ = shown(capfd, file, html=page)
    assert "unsupported: '1950', 'a@b.example <i>'" in out
    text = page.read_text()
    assert "Nearest, in p1: In 02." in text
    assert "a@b.example &lt;i&gt;" in text
    assert "<i>" not in text
    (worst, *others) = numbers(capfd, file)["runs"][0]["series"][0]["worst"]
    assert worst["unsupported"][0] == {
        "start": 10,
        "end": 14,
        "text": "1950",
        "passage_id": "p1",
        "evidence": "In 02.",
    }
    assert all(other["unsupported"] == [] for other in others)
    traces = tmp_path / "traces.jsonl"
    traces.write_text(
        json.dumps(trace_dict(trace_id="t0", answer="Opened in 1950 in a@b.example <i>"))
    )
    shown(capfd, file, html=page, traces=traces)
    assert (
        '<mark tabindex="0" title="Nothing supports this. Nearest, in p1: In 02.">1950</mark>'
        in (page.read_text())
    )


@pytest.mark.parametrize(
    ("privacy", "quoted"),
    [({"content": "none"}, []), ({"redact": ["email"]}, ["1950", "[email] <i>"])],
)
def test_quotes_are_redacted_or_not_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], privacy: dict[str, Any], quoted: list[str]
) -> None:
    settings = load_settings(environ={}, overrides={"privacy": privacy})
    file = spans_file(tmp_path / "a.jsonl")
    found = numbers(capfd, file, settings=settings)["runs"][0]["series"][0]["worst"][0]
    assert [span["text"] for span in found["unsupported"]] == quoted


def test_repeats_services_and_unreadable_lines_are_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = scores(tmp_path / "a.jsonl", [0.2, 0.4])
    more = json.dumps(line_dict(0, result("grounding", 1.0), service="other"))
    again = json.dumps(line_dict(1, result("grounding", 1.0)))
    with file.open("a") as out:
        out.write(f"{more}\n{again}\nnonsense\n")
    notes = " ".join(numbers(capfd, file)["runs"][0]["notes"])
    for words in ("1 repeated", "1 lines unreadable", "2 services taken together"):
        assert words in notes
    alone = numbers(capfd, file, service="bot")["runs"][0]
    assert alone["traces"] == 2
    assert alone["series"][0]["value"] == pytest.approx(0.3)


def test_probabilities_are_honoured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.jsonl"
    lines = [
        line_dict(0, result("grounding", 1.0, probability=0.25)),
        line_dict(1, result("grounding", 0.0)),
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    (series,) = numbers(capfd, file)["runs"][0]["series"]
    assert (series["value"], series["weighted"]) == (pytest.approx(0.8), True)
    assert series["box"]["median"] == 1.0


@pytest.mark.parametrize(
    "more",
    [
        {"pair_by": "nothing"},
        {"pair_by": "tag:"},
        {"html": Path("-")},
        {"metrics": ["relevance"]},
        {"files": [Path("-"), Path("-")]},
    ],
)
def test_calls_that_cannot_be_meant(tmp_path: Path, more: dict[str, Any]) -> None:
    file = scores(tmp_path / "a.jsonl", [0.1])
    with pytest.raises(UsageError):
        run_report(ReportOptions(**{"files": [file], **more}), SETTINGS, print, render_report)


def test_nothing_read_is_overwritten(tmp_path: Path) -> None:
    file = scores(tmp_path / "a.jsonl", [0.1])
    link = tmp_path / "link"
    os.link(file, link)
    for html in (link, file):
        with pytest.raises(UsageError, match="is what is read"):
            run_report(ReportOptions([file], html=html), SETTINGS, print, render_report)
    with pytest.raises(UsageError, match="is what is read"):
        convert_to_open_rag_eval(ReportOptions([file]), link, SETTINGS, print)
    assert "grounding" in file.read_text()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no scored trace"),
        (b"a,b\n1,2\n", "neither what"),
        (b"query_id,run_1_generated_answer\n\xff,x\n", "not UTF-8"),
        (b"\x1f\x8b\x08\x00", "cut off"),
        (b"query_id,run_1_generated_answer\n" + b"x" * 20_000, "over the limit"),
        ("trace_id".encode("utf-16"), "UTF-8 is needed"),
    ],
)
def test_files_that_are_none(tmp_path: Path, data: bytes, why: str) -> None:
    file = tmp_path / "a"
    file.write_bytes(data)
    small = load_settings(environ={}, overrides={"limits": {"trace_bytes": 10_000}})
    with pytest.raises(OSError, match=why):
        run_report(ReportOptions([file]), small, print, render_report)


def test_open_rag_eval_columns_out_and_in_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "a.jsonl", tmp_path / "a.csv"
    more: dict[str, Any] = {"scorer": "umbrela", "detail": {"grades": [3, 1]}}
    lines = [line_dict(n, result("relevance", 2.0, **more)) for n in range(3)]
    file.write_text("\n".join(map(json.dumps, lines)))
    reported: list[str] = []
    asked = traces(tmp_path / "t.jsonl", 3)
    convert_to_open_rag_eval(ReportOptions([file], traces=asked), out, SETTINGS, reported.append)
    with out.open(newline="") as written:
        rows = list(csv.DictReader(written))
    assert list(rows[0]) == ["query_id", "query", *(f"run_1_{name}" for name in COLUMNS)]
    assert [row["query_id"] for row in rows] == ["t0", "t1", "t2"]
    assert json.loads(rows[0]["run_1_retrieval_score_umbrela_scores"]) == {"[1]": 3, "[2]": 1}
    assert rows[0]["run_1_generated_answer"]
    assert any("without a value" in line and "hallucination" in line for line in reported)
    (series,) = [s for s in numbers(capfd, out)["runs"][0]["series"] if s["samples"]]
    assert (series["metric"], series["value"]) == ("relevance", 2.0)
    with pytest.raises(UsageError):
        convert_to_open_rag_eval(ReportOptions([file, file]), out, SETTINGS, print)


def test_names_reach_the_terminal_harmless(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = scores(tmp_path / "\x1b[2J[bold]a.jsonl", [0.1], trace_id="\x1b[31m[red]x")
    out, _ = shown(capfd, file, scores(tmp_path / "b.jsonl", [0.1]))
    assert "\x1b" not in out
    assert "[bold]a" in out


def test_the_command(tmp_path: Path) -> None:
    file = scores(tmp_path / "a.jsonl", [0.1, 0.9])
    done = ragmeter("report", "-", file, "--format", "json", stdin=file.read_bytes())
    assert done.returncode == 0, done.stderr
    assert [run["name"] for run in json.loads(done.stdout)["runs"]] == ["stdin", "a"]
    assert ragmeter("report", file, "--pair-by", "x").returncode == 2
    assert ragmeter("report", tmp_path / "none").returncode == 1


@pytest.mark.parametrize("content", ["full", "none"])
def test_scored_into_the_same_columns(tmp_path: Path, content: str) -> None:
    asked, scored, out = (tmp_path / name for name in ("t.jsonl", "s.jsonl", "a.csv"))
    traces(asked, 3)
    settings = load_settings(environ={}, overrides={"privacy": {"content": content}})
    for path, form in ((scored, "jsonl"), (out, "open-rag-eval")):
        asyncio.run(score_file(asked, path, form, settings, print))
    again = tmp_path / "b.csv"
    convert_to_open_rag_eval(ReportOptions([scored], traces=asked), again, settings, print)
    assert out.read_bytes() == again.read_bytes()
    with out.open(newline="") as one:
        rows = list(csv.DictReader(one))
    assert [row["query_id"] for row in rows] == ["t0", "t1", "t2"]
    assert bool(rows[0]["run_1_generated_answer"]) == (content == "full")
