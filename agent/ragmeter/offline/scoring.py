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
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from ragmeter.config.settings import Settings
from ragmeter.console.terminal import FileProgress, check_output_path
from ragmeter.core.counters import Counts
from ragmeter.core.errors import UsageError
from ragmeter.core.feedback import Feedback
from ragmeter.core.files import replacing
from ragmeter.core.judging import TraceJudging
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import ReferenceMeasurer, ScoringCost, Tier, TierScorer
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.feedback_files import read_feedback
from ragmeter.ingest.files import MAX_SHOWN, STDIN, InputFile
from ragmeter.ingest.native import DecodedTrace, DecodeFailure
from ragmeter.ingest.redaction import Redactor
from ragmeter.metrics.canary.specs import abstention_pairs, judged_abstention, leave_to_judge
from ragmeter.metrics.language import NOT_MEASURED
from ragmeter.offline.judging_summary import JudgingSummary
from ragmeter.offline.parquet import ParquetWriter
from ragmeter.offline.report.open_rag_eval import OpenRagEvalTable
from ragmeter.offline.score_table import ScoreTable
from ragmeter.offline.whole_file import FileFeedback
from ragmeter.reasons import Reason
from ragmeter.scorers.judge.second_opinion import DISAGREEMENT_METRIC
from ragmeter.scoring.scorer import Scorer, complete_results, summarise_trace
from ragmeter.scoring.slow_tiers import score_tier
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

# Traces between two updates of the progress bar, unless a slow tier makes each of them slow.
_PROGRESS_EVERY = 256


@dataclass(slots=True)
class ScoringSummary:
    """Counts of one run.

    Args:
        traces: Traces scored.
        bad: Items that are no trace.
        unread: Traces that some scorer leaves out because of their language.
        scored: Results with a value, by tier.
        failed: Results that the judge or the model failed to give, by tier and reason.
        judging: The judges, their instruments and what they cost.
        seconds: Time of the whole run.
    """

    traces: int = 0
    bad: int = 0
    unread: int = 0
    scored: Counter[Tier] = field(default_factory=Counter)
    failed: dict[Tier, Counter[str]] = field(default_factory=dict)
    judging: JudgingSummary = field(default_factory=JudgingSummary)
    seconds: float = 0.0

    def add(self, tier: Tier, scores: list[Score]) -> None:
        """Count the results of a tier for one trace."""
        self.scored[tier] += sum(score.state is ScoreState.SCORED for score in scores)
        reasons = Counter(str(score.reason) for score in scores if _is_scorer_failure(score))
        self.failed.setdefault(tier, Counter()).update(reasons)

    @property
    def failed_tiers(self) -> list[Tier]:
        """The tiers that failed and gave no value at all."""
        return [tier for tier, failed in self.failed.items() if failed and not self.scored[tier]]

    def summary_lines(self) -> list[str]:
        """Return lines for the terminal: languages, and how often and why a tier failed."""
        lines: list[str] = []
        if self.unread:
            lines.append(
                f"language: {self.unread:,} of {self.traces:,} traces"
                f" ({self.unread / self.traces:.0%}) are in a language that some scorer was not"
                " measured on, and are not applicable to it"
            )
        for tier, failed in self.failed.items():
            if failed:
                total = self.scored[tier] + failed.total()
                why = ", ".join(f"{reason} {number:,}" for reason, number in failed.most_common())
                lines.append(f"{tier}: {failed.total():,} of {total:,} results unscored ({why})")
        return lines


def _is_scorer_failure(score: Score) -> bool:
    """Return whether the judge or the model, and not the trace, is why there is no value."""
    reason = score.reason or ""
    failures = (Reason.UNPARSABLE, Reason.MODEL_ERROR, Reason.INTERNAL_ERROR)
    return score.state is ScoreState.UNSCORED and (
        reason.startswith("judge_") or reason in failures
    )


class OfflineScorer:
    """Scores traces by every tier; an asynchronous context manager, to be entered once.

    Metrics against a reference are computed for every trace that has one, canary or not.

    Args:
        tiers: The slow tiers (judge, model) in use.
        labels: Feedback to join to the traces.
        rejudge: Redact nothing, as the traces are redacted, and score by `tiers` and a reference.

    Attributes:
        summary: Counts of what was scored so far.
        expected: (metric, scorer) of every result that a trace may have.
    """

    def __init__(
        self,
        settings: Settings,
        tiers: Mapping[Tier, TierScorer] | None = None,
        labels: FileFeedback | None = None,
        rejudge: bool = False,
    ) -> None:
        self.summary = ScoringSummary()
        self._rejudge = rejudge
        self.counts: Counts = {}  # of the redaction
        self._tiers = tiers or {}
        self._labels = labels
        self._scorer = Scorer(settings.builtin_scorers, ks=settings.judge.k)
        self._redactor = Redactor(settings.privacy)
        self._content = ContentPolicy(settings.privacy)
        self._concurrency = settings.judge.concurrency if tiers else 1
        self._stack = contextlib.AsyncExitStack()
        self.expected = [
            *(() if rejudge else self._scorer.pairs),
            *(pair for tier in self._tiers.values() for pair in tier.pairs),
            *self._scorer.canary_pairs,
            *(pair for tier in self._tiers.values() for pair in abstention_pairs(tier.pairs)),
            *(labels.pairs if labels is not None else ()),
        ]

    async def __aenter__(self) -> Self:
        for tier in self._tiers.values():
            if isinstance(tier, contextlib.AbstractAsyncContextManager):
                await self._stack.enter_async_context(tier)
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
            self.summary.unread += any(one.reason == NOT_MEASURED.reason for one in scored.results)
            return scored, trace if self._content.full else None

        for item in traces:
            trace = item.trace if self._rejudge else self._redactor.trace(item, self.counts).trace
            under_way.append((asyncio.create_task(self.score(trace)), trace))
            while len(under_way) >= self._concurrency:
                yield await next_result()
        while under_way:
            yield await next_result()

    async def score(self, trace: Trace) -> ScoredTrace:
        """Score one trace."""
        spent = ScoringCost()
        trace = await self.measure(trace, spent)
        results: list[Score] = []
        tiers = self._tiers.values()
        if not self._rejudge:
            results += self._scorer.score_cheap(trace)
        slow_results = await asyncio.gather(*(self._run_tier(tier, trace, spent) for tier in tiers))
        judging = None
        for scores, how in slow_results:
            results += scores
            judging = judging or how
        if trace.canary:
            judged = judged_abstention(trace, results)
            results += self._scorer.score_reference(trace)
            if any(one.value is not None for one in judged):
                results = leave_to_judge(results)
            results += judged
        if self._labels is not None:
            results += self._labels.scores(trace)
        if judging is not None and not judging.uses:
            judging = None  # nothing had to be asked
        self.summary.judging.add(judging)
        return summarise_trace(trace, results)._replace(judging=judging)

    async def measure(self, trace: Trace, cost: ScoringCost) -> Trace:
        """Return a canary with what the tiers measure for its reference, another trace as it is."""
        for tier in self._tiers.values():
            if trace.canary and isinstance(tier, ReferenceMeasurer):
                trace = await tier.measure(trace, cost)
        return trace

    async def _run_tier(
        self, tier: TierScorer, trace: Trace, spent: ScoringCost
    ) -> tuple[list[Score], TraceJudging | None]:
        scores: list[Score] = []
        cost = ScoringCost()
        began = time.time()
        start = time.monotonic()
        try:
            scores = await score_tier(tier, trace, cost)
        except Exception:
            log.exception("the %s tier failed on trace %r", tier.tier, trace.trace_id[:80])
        scores = complete_results(scores, tier.pairs, trace.probability)
        self.summary.add(tier.tier, scores)
        instruments = getattr(tier, "instruments", None)
        if instruments is None:  # it is no judge
            return scores, None
        cost.add(spent)
        fingerprints = [score.fingerprint for score in scores if score.fingerprint]
        judging = TraceJudging(began, time.monotonic() - start, cost.uses)
        for score in scores:
            if score.metric == DISAGREEMENT_METRIC and score.detail:
                fingerprints += score.detail["second"]
                judging.compared = score.detail["compared"]
        judging.instruments = instruments(fingerprints)
        return scores, judging


async def score_file(
    path: Path,
    output: Path,
    form: str,
    settings: Settings,
    say: Callable[[str], None],
    tiers: Mapping[Tier, TierScorer] | None = None,
    feedback: Path | None = None,
    judge_inputs: Path | None = None,
    rejudge: bool = False,
) -> ScoringSummary:
    """Score every trace of a file and write the results in the order of the file.

    The output appears only when it is complete; `form` is `jsonl`, `csv`, `parquet` or
    `open-rag-eval`.
    `judge.concurrency` traces are scored at a time; labels of the feedback are joined to them.
    `judge_inputs` gets the traces as the judge is shown them; with `rejudge` the file is one that
    was written so, and is scored by `tiers` and references alone.

    Raises:
        UsageError: The output is one of the inputs, or texts may not be kept.
        OSError: A file cannot be read or written.
    """
    _check_apart(path, output)
    if judge_inputs is not None:
        _check_judge_inputs(judge_inputs, output, [path, *filter(None, [feedback])], settings)
    labels = None
    if feedback is not None:
        _check_apart(feedback, output)
        labels = _read_labels(feedback, settings, say)
    start = time.monotonic()
    source = InputFile(path)
    scorer = OfflineScorer(settings, tiers, labels, rejudge)
    summary = scorer.summary
    with FileProgress(Path(source.name).name, source.size) as progress:

        def traces() -> Iterator[DecodedTrace]:
            items = source.read(settings.limits.trace_bytes)
            for number, (item, position) in enumerate(items, start=1):
                if rejudge and isinstance(item, DecodedTrace):
                    item = _check_judge_input(item)
                if isinstance(item, DecodeFailure):
                    summary.bad += 1
                    if summary.bad <= MAX_SHOWN:
                        say(f"item {number}: {item.describe()}")
                else:
                    yield item
                if tiers or number % _PROGRESS_EVERY == 0:
                    progress.read(number, position)

        async with scorer:
            with contextlib.ExitStack() as files:
                file = files.enter_context(_open_output(output))
                write = files.enter_context(_open_writer(form, file, scorer.expected))
                inputs = files.enter_context(_open_output(judge_inputs)) if judge_inputs else None
                async for scored, trace in scorer.score_all(traces()):
                    write(scored, trace)
                    if inputs is not None and trace is not None:
                        inputs.write(_judge_input_line(trace))
    summary.seconds = time.monotonic() - start
    if labels is not None and labels.used < labels.number:
        say(f"{labels.number - labels.used:,} of {labels.number:,} items of feedback have no trace")
    if source.empty:
        say(f"{source.name}: the file is empty")
    for (name, where), number in sorted(scorer.counts.items()):
        if name == "ragmeter_redaction_failures_total":
            say(f"{number:,.0f} texts dropped: {', '.join(value for _, value in where)}")
    return summary


# A field of the traces that `--keep-judge-inputs` writes: the version of their form. They are
# native traces otherwise, which every command reads.
_JUDGE_INPUT = "judge_input"


def _judge_input_line(trace: Trace) -> str:
    document = trace.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return json.dumps({_JUDGE_INPUT: 1, **document}, ensure_ascii=False) + "\n"


def _check_judge_input(item: DecodedTrace) -> DecodedTrace | DecodeFailure:
    """Refuse any other trace: nothing would redact it on its way to the judge."""
    if json.loads(item.body).get(_JUDGE_INPUT) == 1:
        return item
    why = "--keep-judge-inputs has not written this trace, or a newer version has"
    return DecodeFailure.of_whole("no_judge_input", why, item.body)


def _check_judge_inputs(
    path: Path, output: Path, inputs: Sequence[Path], settings: Settings
) -> None:
    if settings.judge.base_url is None:
        raise UsageError("--keep-judge-inputs: no judge is configured (judge.base_url)")
    if settings.privacy.content != "full":
        raise UsageError("--keep-judge-inputs writes texts, which privacy.content does not allow")
    if path.resolve() == output.resolve():
        raise UsageError("--keep-judge-inputs: the scores go into the same file")
    check_output_path("--keep-judge-inputs", path, inputs)


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
                say(f"{path.name}: item {number}: {item.describe()}")

    labels = FileFeedback(readable(), settings.judge.k)
    if bad:
        say(f"{path.name}: {bad:,} items unreadable")
    return labels


def _check_apart(path: Path, output: Path) -> None:
    source = _file_status(path, 0)
    target = _file_status(output, 1)
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
            score_table = ScoreTable(rows, pairs)
            yield score_table.write
            score_table.finish(file)
