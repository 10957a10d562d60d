"""Score traces offline, by every tier and without sampling; `ragmeter score` on a file."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import logging
import os
import stat
import tempfile
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from ragmeter.config.settings import Settings
from ragmeter.console.terminal import FileProgress, UsageError
from ragmeter.core.arithmetic import AnswerVectors
from ragmeter.core.atomic_files import replacing
from ragmeter.core.counters import Counts
from ragmeter.core.feedback import Feedback
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import ReferenceMeasurer, ScoringCost, Tier, TierScorer
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.files import MAX_SHOWN, STDIN, InputFile, read_feedback
from ragmeter.ingest.native import DecodedTrace, DecodeFailure
from ragmeter.ingest.redaction import Redactor
from ragmeter.metrics.canary.specs import abstention_pairs, judged_abstention, leave_to_judge
from ragmeter.offline.parquet import ParquetWriter
from ragmeter.offline.report.input_files import TAG_COLUMN, TIMING_COLUMN
from ragmeter.offline.report.open_rag_eval import OpenRagEvalTable
from ragmeter.offline.whole_file import FileAnswers, FileFeedback
from ragmeter.scoring.answer_embedding import build_answer_embedder
from ragmeter.scoring.scorer import Scorer, complete_results, summarise_trace
from ragmeter.scoring.slow_tiers import score_tier
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

# Traces between two updates of the progress bar, unless a slow tier makes each of them slow.
_PROGRESS_EVERY = 256

_KEY_COLUMNS = ("trace_id", "service", "timestamp")
_MAX_COLUMNS = 100  # stages, and tags, that have a column: their names come from a file


@dataclass(slots=True)
class ScoringSummary:
    """Counts of one run.

    Args:
        traces: Traces scored.
        bad: Items that are no trace.
        compared: Lines on the agreement of answers to the same question.
        scored: Results with a value, by tier.
        failed: Results that the judge or the model failed to give, by tier and reason.
    """

    traces: int = 0
    bad: int = 0
    compared: list[str] = field(default_factory=list)
    scored: Counter[Tier] = field(default_factory=Counter)
    failed: dict[Tier, Counter[str]] = field(default_factory=dict)

    def add(self, tier: Tier, scores: list[Score]) -> None:
        """Count the results of a tier for one trace."""
        self.scored[tier] += sum(score.state is ScoreState.SCORED for score in scores)
        reasons = Counter(str(score.reason) for score in scores if _is_scorer_failure(score))
        self.failed.setdefault(tier, Counter()).update(reasons)

    def add_embedding(self, result: AnswerVectors | str) -> None:
        """Count the vectors of an answer, or the reason why there are none."""
        failed = self.failed.setdefault("embedding", Counter())
        if isinstance(result, str):
            failed[result] += 1
        else:
            self.scored["embedding"] += 1

    @property
    def failed_tiers(self) -> list[Tier]:
        """The tiers that failed and gave no value at all."""
        return [tier for tier, failed in self.failed.items() if failed and not self.scored[tier]]

    def summary_lines(self) -> list[str]:
        """Return lines for the terminal: the comparisons, and how often and why a tier failed."""
        lines = list(self.compared)
        for tier, failed in self.failed.items():
            if failed:
                total = self.scored[tier] + failed.total()
                why = ", ".join(f"{reason} {number:,}" for reason, number in failed.most_common())
                lines.append(f"{tier}: {failed.total():,} of {total:,} results unscored ({why})")
        return lines


def _is_scorer_failure(score: Score) -> bool:
    """Return whether the judge or the model, and not the trace, is why there is no value."""
    reason = score.reason or ""
    failures = ("unparsable", "model_error", "internal_error")
    return score.state is ScoreState.UNSCORED and (
        reason.startswith("judge_") or reason in failures
    )


class OfflineScorer:
    """Scores traces by every tier; an asynchronous context manager, to be entered once.

    Metrics against a reference are computed for every trace that has one, canary or not.

    Args:
        settings: The settings.
        tiers: The slow tiers (judge, model) in use.
        labels: Feedback to join to the traces.

    Attributes:
        summary: Counts of what was scored so far.
        expected: (metric, scorer) of every result that a trace may have.
    """

    def __init__(
        self,
        settings: Settings,
        tiers: Mapping[Tier, TierScorer] | None = None,
        labels: FileFeedback | None = None,
    ) -> None:
        self.summary = ScoringSummary()
        self.counts: Counts = {}  # of the redaction
        self._tiers = tiers or {}
        self._labels = labels
        self._scorer = Scorer(settings.builtin_scorers, ks=settings.judge.k)
        self._redactor = Redactor(settings.privacy)
        self._content = ContentPolicy(settings.privacy)
        self._embedder = build_answer_embedder(settings.consistency, settings.privacy)
        self._answers = FileAnswers(settings, self._embedder)
        self._concurrency = settings.judge.concurrency if tiers else 1
        if self._embedder is not None:
            embeddings = settings.consistency.embeddings
            self._concurrency = max(self._concurrency, embeddings.concurrency)
        self._stack = contextlib.AsyncExitStack()
        self.expected = [
            *self._scorer.pairs,
            *(pair for tier in self._tiers.values() for pair in tier.pairs),
            *self._scorer.canary_pairs,
            *(pair for tier in self._tiers.values() for pair in abstention_pairs(tier.pairs)),
            *(labels.pairs if labels is not None else ()),
        ]

    async def __aenter__(self) -> Self:
        for resource in (*self._tiers.values(), self._embedder):
            if isinstance(resource, contextlib.AbstractAsyncContextManager):
                await self._stack.enter_async_context(resource)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def score_all(
        self, traces: Iterable[DecodedTrace]
    ) -> AsyncIterator[tuple[ScoredTrace, Trace | None]]:
        """Score traces, several at a time, and yield the results in the order of the traces.

        Yields:
            The scored trace, and the redacted trace where `privacy.content` lets its texts be kept.
        """
        under_way: deque[tuple[asyncio.Task[ScoredTrace], Trace]] = deque()

        async def next_result() -> tuple[ScoredTrace, Trace | None]:
            task, trace = under_way.popleft()
            scored = self._content.scored(await task)
            self.summary.traces += 1
            return scored, trace if self._content.full else None

        for item in traces:
            trace = self._redactor.trace(item, self.counts).trace
            under_way.append((asyncio.create_task(self.score(trace)), trace))
            while len(under_way) >= self._concurrency:
                yield await next_result()
        while under_way:
            yield await next_result()
        self.summary.compared += self._answers.lines()

    async def score(self, trace: Trace) -> ScoredTrace:
        """Score one trace."""
        trace = await self.measure(trace)
        results = self._scorer.score_cheap(trace)
        slow = asyncio.gather(*(self._run_tier(tier, trace) for tier in self._tiers.values()))
        embedding, slow_results = await asyncio.gather(self._answers.add(trace), slow)
        if embedding is not None:
            self.summary.add_embedding(embedding)
        for scores in slow_results:
            results += scores
        if trace.canary:
            judged = judged_abstention(trace, results)
            results += self._scorer.score_reference(trace)
            if any(one.value is not None for one in judged):
                results = leave_to_judge(results)
            results += judged
        if self._labels is not None:
            results += self._labels.scores(trace)
        return summarise_trace(trace, results)

    async def measure(self, trace: Trace) -> Trace:
        """Return a canary with what the tiers measure for its reference, another trace as it is."""
        for tier in self._tiers.values():
            if trace.canary and isinstance(tier, ReferenceMeasurer):
                trace = await tier.measure(trace, ScoringCost())
        return trace

    async def _run_tier(self, tier: TierScorer, trace: Trace) -> list[Score]:
        scores: list[Score] = []
        try:
            scores = await score_tier(tier, trace, ScoringCost())
        except Exception:
            log.exception("the %s tier failed on trace %r", tier.tier, trace.trace_id[:80])
        scores = complete_results(scores, tier.pairs, trace.probability)
        self.summary.add(tier.tier, scores)
        return scores


async def score_file(
    path: Path,
    output: Path,
    form: str,
    settings: Settings,
    say: Callable[[str], None],
    tiers: Mapping[Tier, TierScorer] | None = None,
    feedback: Path | None = None,
) -> ScoringSummary:
    """Score every trace of a file and write the results in the order of the file.

    The output appears only when it is complete; `form` is `jsonl`, `csv`, `parquet` or
    `open-rag-eval`.
    `judge.concurrency` traces are scored at a time; labels of the feedback are joined to them.

    Raises:
        UsageError: The output is one of the inputs.
        OSError: A file cannot be read or written.
    """
    _check_apart(path, output)
    labels = None
    if feedback is not None:
        _check_apart(feedback, output)
        labels = _read_labels(feedback, settings, say)
    source = InputFile(path)
    scorer = OfflineScorer(settings, tiers, labels)
    summary = scorer.summary
    with FileProgress(Path(source.name).name, source.size) as progress:

        def traces() -> Iterator[DecodedTrace]:
            items = source.read(settings.limits.trace_bytes)
            for number, (item, position) in enumerate(items, start=1):
                if isinstance(item, DecodeFailure):
                    summary.bad += 1
                    if summary.bad <= MAX_SHOWN:
                        say(_failure_line(f"item {number}", item))
                else:
                    yield item
                if tiers or number % _PROGRESS_EVERY == 0:
                    progress.read(number, summary.bad, position)

        async with scorer:
            with _open_output(output) as file, _open_writer(form, file, scorer.expected) as write:
                async for scored, trace in scorer.score_all(traces()):
                    write(scored, trace)
    if labels is not None and labels.used < labels.number:
        say(f"{labels.number - labels.used:,} of {labels.number:,} items of feedback have no trace")
    if source.empty:
        say(f"{source.name}: the file is empty")
    for (name, where), number in sorted(scorer.counts.items()):
        if name == "ragmeter_redaction_failures_total":
            say(f"{number:,.0f} texts dropped: {', '.join(value for _, value in where)}")
    return summary


def _read_labels(path: Path, settings: Settings, say: Callable[[str], None]) -> FileFeedback:
    bad = 0

    def readable() -> Iterator[Feedback]:
        nonlocal bad
        for number, item in enumerate(read_feedback(path), start=1):
            if not isinstance(item, DecodeFailure):
                yield item
                continue
            bad += 1
            if bad <= MAX_SHOWN:
                say(_failure_line(f"{path.name}: item {number}", item))

    labels = FileFeedback(readable(), settings.judge.k)
    if bad:
        say(f"{path.name}: {bad:,} items unreadable")
    return labels


def _failure_line(item: str, failure: DecodeFailure) -> str:
    why = "; ".join(f"{field or 'item'}: {why}" for field, why in failure.errors)
    return f"{item}: {failure.reason}: {why}"


def _check_apart(path: Path, output: Path) -> None:
    source, target = _file_status(path, 0), _file_status(output, 1)
    if source is None or target is None or not stat.S_ISREG(source.st_mode):
        return
    if os.path.samestat(source, target):
        raise UsageError(f"{output}: the output is the input; write somewhere else")


def _file_status(path: Path, number: int) -> os.stat_result | None:
    try:
        return os.fstat(number) if path == STDIN else path.stat()
    except OSError:
        return None


@contextmanager
def _open_output(output: Path) -> Iterator[IO[str]]:
    """Open a UTF-8 file that appears under its name when it is complete; stdout as it is."""
    # an escaped lone surrogate is valid JSON
    text: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
    if output == STDIN:
        with open(1, "w", closefd=False, **text) as file:
            yield file
        return
    with replacing(output) as part, part.open("w", **text) as file:
        yield file


@contextmanager
def _open_writer(
    form: str, file: IO[str], pairs: list[tuple[str, str]]
) -> Iterator[Callable[[ScoredTrace, Trace | None], object]]:
    """Write the header of a format, and yield what writes a trace with its redacted texts."""
    if form == "parquet":
        with contextlib.closing(ParquetWriter(file.buffer)) as writer:  # type: ignore[attr-defined]
            yield lambda scored, _: writer.write(scored)
    elif form == "jsonl":
        yield lambda scored, _: file.write(json.dumps(scored.to_dict(), ensure_ascii=False) + "\n")
    elif form == "open-rag-eval":
        table = OpenRagEvalTable()
        yield table.add
        csv.writer(file, lineterminator="\n").writerows(table.rows())  # as pandas writes it
    else:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace") as rows:
            score_table = _ScoreTable(rows, pairs)
            yield score_table.write
            score_table.finish(file)


class _ScoreTable:
    """Writes scored traces as CSV, with a column for each score, stage and tag.

    Which stages and tags there are is known after the last trace, so the rows wait in a temporary
    file for their header.

    Args:
        rows: An empty temporary file.
        pairs: (metric, scorer) of each column of scores.
    """

    def __init__(self, rows: IO[str], pairs: list[tuple[str, str]]) -> None:
        self._rows = rows
        self._pairs = pairs
        self._stages: dict[str, None] = {}
        self._tags: dict[str, None] = {}

    def write(self, scored: ScoredTrace, _: Trace | None) -> None:
        """Add a row."""
        values = {(score.metric, score.scorer): score.value for score in scored.results}
        document, cells = scored.to_dict(), map(values.get, self._pairs)
        for columns, found in ((self._stages, scored.timings), (self._tags, scored.tags)):
            for name in found:
                if len(columns) < _MAX_COLUMNS:
                    columns.setdefault(name)
        row = [
            *(document[name] for name in _KEY_COLUMNS),
            *("" if cell is None else repr(cell) for cell in cells),
        ]
        self._rows.write(json.dumps([row, scored.timings, scored.tags]) + "\n")

    def finish(self, file: IO[str]) -> None:
        """Write the header and the rows into `file`."""
        table = csv.writer(file)
        table.writerow([
            *_KEY_COLUMNS,
            *(f"{metric}.{scorer}" for metric, scorer in self._pairs),
            *(TIMING_COLUMN + stage for stage in self._stages),
            *(TAG_COLUMN + tag for tag in self._tags),
        ])  # fmt: skip
        self._rows.seek(0)
        for line in self._rows:
            row, timings, tags = json.loads(line)
            table.writerow([
                *row,
                *(timings.get(stage, "") for stage in self._stages),
                *(tags.get(tag, "") for tag in self._tags),
            ])  # fmt: skip
