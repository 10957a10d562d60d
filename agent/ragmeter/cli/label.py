"""The command `ragmeter label`: draw traces with known probability, and ask people about them."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ragmeter.cli import options
from ragmeter.config.scoring import JudgeSettings
from ragmeter.config.settings import Settings
from ragmeter.console.streams import escape_control, print_message
from ragmeter.console.terminal import add_text_row, build_table, print_tables, stderr
from ragmeter.core.errors import UsageError
from ragmeter.core.feedback import CANNOT_TELL, PEOPLE, Feedback, Verdict
from ragmeter.core.score import Score, ScoredTrace, read_unsupported
from ragmeter.ingest.feedback_files import read_feedback
from ragmeter.ingest.files import InputFile
from ragmeter.ingest.native import DecodedTrace, DecodeFailure
from ragmeter.metrics.labelled import SORTED_BY
from ragmeter.sampling.slices import LABELS_PER_DRAW, draw_slices
from ragmeter.trace import Trace
from ragmeter.windows.people_agreement import (
    LabelledScores,
    Results,
    ScorerAgreement,
    compare_with_people,
    scorer_values,
)

QUESTIONS = {
    "answered": "Does it attempt the question?",
    "grounded": "Do the passages support every claim of it?",
    "relevant": "Do the passages bear on the query?",
}
_KEYS: dict[str, bool | str] = {"y": True, "n": False, "?": CANNOT_TELL}
_MAX_CHARS = 4000  # of a text on the terminal
_MAX_PASSAGES = 20
_WITH_YOU = "Agreement with you"
_MARK = "bold red underline"
_SECONDS = 40.0  # for a request to the agent, which tries to store for 30


# A trace to label: its native JSON as `trace`, its scores as `results`, and its `probability`.
_Question = Mapping[str, Any]


def label(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Traces to draw from: JSON lines or array, gzip too. Default: those of"
            " the running agent (sampling.people)."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="File of the labels; what is in it is not asked again. Default: FILE.labels.jsonl."
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1000, help="How many traces to draw.")
    ] = LABELS_PER_DRAW,
    service: Annotated[
        str | None, typer.Option(help="The service; needed where the agent has several.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Ask nothing: show what the labels say so far.")
    ] = False,
    url: options.AgentUrlOption = None,
    config: options.ConfigOption = None,
) -> None:
    """Draw traces with known probability, and ask you about them.

    The labels give an estimate of what you would say of all traces, in which the scores of all
    traces help where they narrow it, and the agreement of every scorer with you. y: yes, n: no,
    ?: cannot tell, q: stop; the next call goes on.
    """
    settings = options.load_or_exit(config)
    with options.exit_on_error():
        work: _FileDraw | _AgentDraw
        if file is None:
            if labels is not None:
                raise UsageError("--labels is for a FILE")
            work = _AgentDraw(settings, url, service)
        else:
            out = labels or file.with_name(f"{file.name.removesuffix('.gz')}.labels.jsonl")
            work = _FileDraw(file=file, labels=out, count=count, settings=settings, service=service)
        if not show:
            _ask_all(work.questions(count), work.store)
        tables = [table for table in work.tables() if table.row_count]
        if not tables:
            print_message("there are no labels yet")
        print_tables(tables)


def _ask_all(questions: Sequence[_Question], store: Callable[[_Question, Verdict], None]) -> None:
    for number, question in enumerate(questions, 1):
        _print_trace(question, f"{number} of {len(questions)}")
        verdict = _ask()
        if verdict is None:
            print_message(f"{len(questions) - number + 1} left; the same command goes on")
            return
        store(question, verdict)


def _ask() -> Verdict | None:
    """Return the labels of a trace, None to stop."""
    given: dict[str, bool | str] = {}
    for name, question in QUESTIONS.items():
        if name == "grounded" and given["answered"] is False:
            continue  # what claims nothing needs no support
        while True:
            stderr.print(f"{question} [y/n/?/q] ", end="", markup=False)
            key = sys.stdin.readline()
            if not key or key.strip().lower() == "q":
                return None
            if key.strip().lower() in _KEYS:
                given[name] = _KEYS[key.strip().lower()]
                break
    return Verdict.model_validate(given)


def _print_trace(question: _Question, place: str) -> None:
    trace = question["trace"]
    console = options.stdout_console(100)
    console.rule(place)

    def show(title: str, text: Any, results: Results = ()) -> None:
        console.print(Text(title, style="bold"))
        if not isinstance(text, str):
            console.print("not kept", style="dim")
        else:
            cut = text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]} … [cut]"
            shown = Text()
            at = 0
            details = (one.get("detail") for one in results if one["metric"] == SORTED_BY)
            spans = (span for detail in details for span in read_unsupported(detail))
            for span in sorted(spans, key=lambda span: span.start):
                if span.start >= at:
                    shown.append(escape_control(cut[at : span.start]))
                    shown.append(escape_control(cut[span.start : span.end]), _MARK)
                    at = span.end
            console.print(shown.append(escape_control(cut[at:])))
        console.print()

    show("Query", trace.get("query"))
    passages = trace.get("passages") or []
    for at, passage in enumerate(passages[:_MAX_PASSAGES], 1):
        show(f"Passage {at}", passage.get("text"))
    if len(passages) > _MAX_PASSAGES:
        console.print(f"{len(passages) - _MAX_PASSAGES} more passages are not shown")
    show("Answer", trace.get("answer"), question["results"])


class _FileDraw:
    """Labels of the traces of a file, appended to another."""

    def __init__(
        self, file: Path, labels: Path, count: int, settings: Settings, service: str | None
    ) -> None:
        from ragmeter.offline.whole_file import read_cheap_scores

        self._labels = labels
        traces = _score_file(file, settings)
        traces = {key: item for key, item in traces.items() if service in (None, key[0])}
        if not traces:
            raise UsageError(f"{file}: no trace to draw from")
        self._traces = list(traces.values())
        cheap = [read_cheap_scores(scored) for scored, _ in self._traces]
        self._cheap = [one for one, _ in cheap]
        self._helper = Counter(helper for _, helper in cheap).most_common(1)[0][0]
        self._probability = min(1.0, count / len(self._traces))
        # the same file gives the same draw, so that another call goes on with it
        rng = Random(",".join(sorted(trace.trace_id for _, trace in self._traces)))
        self._drawn = draw_slices([one.get(SORTED_BY) for one in self._cheap], count, rng)
        self._verdicts = self._read()

    def _read(self) -> dict[int, Verdict]:
        by_trace = {(one.service, one.trace_id): at for at, (_, one) in enumerate(self._traces)}
        verdicts: dict[int, Verdict] = {}
        for item in read_feedback(self._labels) if self._labels.exists() else ():
            if isinstance(item, DecodeFailure):
                raise UsageError(f"{self._labels}: not a file of labels: {item.reason}")
            at = by_trace.get((item.service or "", item.trace_id))
            if item.scorer != PEOPLE or at is None:
                continue
            if item.probability is None or abs(item.probability / self._probability - 1) > 1e-6:
                raise UsageError(
                    f"{self._labels}: its labels are of another draw than {len(self._drawn)} of"
                    f" {len(self._traces)} traces; name another file by --labels"
                )
            verdicts[at] = item.verdict
        return verdicts

    def questions(self, _: int) -> list[_Question]:
        """Return what is left to label."""
        left = [self._traces[at] for at in self._drawn if at not in self._verdicts]
        return [
            {
                "trace": trace.model_dump(mode="json"),
                "results": [score.to_dict() for score in scored.results],
                "probability": self._probability,
            }
            for scored, trace in left
        ]

    def store(self, question: _Question, verdict: Verdict) -> None:
        """Append the labels to the file."""
        trace = question["trace"]
        feedback = Feedback(
            trace_id=trace["trace_id"],
            service=trace["service"],
            timestamp=datetime.now(UTC),
            scorer=PEOPLE,
            probability=question["probability"],
            verdict=verdict,
        )
        with self._labels.open("a", encoding="utf-8") as out:
            out.write(feedback.model_dump_json(exclude_defaults=True) + "\n")
            out.flush()
            os.fsync(out.fileno())
        self._verdicts = self._read()

    def tables(self) -> list[Table]:
        """Return the estimates and the agreement."""
        from ragmeter.offline.report.tables import agreement_table
        from ragmeter.offline.whole_file import estimate_people

        labels = {at: (verdict, self._probability) for at, verdict in self._verdicts.items()}
        rows = [
            (metric, PEOPLE, one.value, one.lower, one.upper, samples)
            for metric, one, samples in estimate_people(self._cheap, labels, self._helper)
        ]
        labelled = [
            LabelledScores(verdict.given, scorer_values(map(Score.to_dict, scored.results)))
            for scored, verdict in ((self._traces[at][0], v) for at, v in self._verdicts.items())
        ]
        title = f"What you would say of all {len(self._traces):,} traces"
        agreement = agreement_table(compare_with_people(labelled), _WITH_YOU)
        return [_estimates_table(title, rows), agreement]


class _AgentDraw:
    """Labels of the traces that a running agent has drawn."""

    def __init__(self, settings: Settings, url: str | None, service: str | None) -> None:
        self._query = partial(options.query_agent, settings, url, seconds=_SECONDS)
        self._service = {} if service is None else {"service": service}

    def questions(self, count: int) -> Sequence[_Question]:
        """Return what is left to label, after a draw if nothing is."""
        document = self._query("/v1/labels", "questions", post={**self._service, "count": count})
        questions: list[_Question] = document["questions"]
        if not questions:
            raise UsageError(str(document["note"]))
        return questions

    def store(self, question: _Question, verdict: Verdict) -> None:
        """Send the labels to the agent."""
        labels = verdict.model_dump(mode="json", exclude_none=True)
        post = {**self._service, "trace_id": question["trace"]["trace_id"], "verdict": labels}
        self._query("/v1/labels", "accepted", post=post)

    def tables(self) -> list[Table]:
        """Return the estimates and the agreement."""
        from ragmeter.offline.report.tables import agreement_table

        document = self._query("/v1/labels", "questions", post={**self._service, "count": 0})
        return [
            _estimates_table(f"The last {document['window']}", document["estimates"]),
            agreement_table((ScorerAgreement(*row) for row in document["agreement"]), _WITH_YOU),
        ]


def _estimates_table(title: str, rows: Iterable[Sequence[Any]]) -> Table:
    """Build a table of rows (metric, scorer, mean, lower, upper, scored traces)."""
    right: dict[str, Any] = {"justify": "right", "no_wrap": True}
    numbers = ((name, right) for name in ("mean", "95 % interval", "traces"))
    table = build_table(title, ("metric", {}), ("scorer", {}), *numbers)
    for metric, scorer, value, lower, upper, n in rows:
        limits = f"{lower:.2f} … {upper:.2f}"
        add_text_row(table, metric, scorer, f"{value:.2f}", limits, f"{n:,}")
    return table


_Scored = tuple[ScoredTrace, Trace]


def _score_file(file: Path, settings: Settings) -> dict[tuple[str, str], _Scored]:
    """Score the traces of a file by the built-in scorers and the local models."""
    from ragmeter.app.api import score

    items = InputFile(file).read(settings.limits.trace_bytes)
    traces = [item.trace for item, _ in items if isinstance(item, DecodedTrace)]
    traces = [trace for trace in traces if not trace.canary]
    scored = score(traces, settings.model_copy(update={"judge": JudgeSettings()}))
    return {
        (one.service, one.trace_id): (one, trace) for one, trace in zip(scored, traces, strict=True)
    }
