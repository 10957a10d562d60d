"""`ragmeter score`: score a file of traces and write a file of scores."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import logging
import os
import stat
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from ragmeter.config.settings import Settings
from ragmeter.console.terminal import FileProgress
from ragmeter.core.atomic_files import replacing
from ragmeter.core.counters import Counts
from ragmeter.core.feedback import Feedback
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import ScoringCost, Tier, TierScorer
from ragmeter.core.vectors import AnswerVectors
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.feedback import read_feedback
from ragmeter.ingest.files import MAX_SHOWN, STDIN, InputFile
from ragmeter.ingest.native import DecodeFailure
from ragmeter.ingest.redaction import Redactor
from ragmeter.offline.report.open_rag_eval import OPEN_RAG_EVAL_HEADER, OpenRagEvalRows
from ragmeter.offline.whole_file import FileAnswers, FileFeedback, open_answer_embedder
from ragmeter.scoring.scorer import Scorer, complete_results, summarise_trace
from ragmeter.scoring.slow_tiers import score_tier
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter.score")


class SameFile(Exception):
    """Writing would destroy what is read."""


def _file_status(path: Path, number: int) -> os.stat_result | None:
    try:
        return os.fstat(number) if path == STDIN else path.stat()
    except OSError:
        return None


def _check_apart(path: Path, output: Path) -> None:
    source, target = _file_status(path, 0), _file_status(output, 1)
    if source is None or target is None or not stat.S_ISREG(source.st_mode):
        return
    if os.path.samestat(source, target):
        raise SameFile(f"{output}: the output is the input; write somewhere else")


@contextmanager
def _open_atomically(output: Path) -> Iterator[IO[str]]:
    """A file that appears under its name only when it is whole. stdout, pipes and devices are
    written to as they are. Always UTF-8.
    """
    # an escaped lone surrogate is valid JSON
    text: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
    if output == STDIN:
        with open(1, "w", closefd=False, **text) as file:
            yield file
        return
    with replacing(output) as part, part.open("w", **text) as file:
        yield file


def _is_scorer_failure(score: Score) -> bool:
    """Whether it is unscored on account of the judge or the model, and not of the trace."""
    reason = score.reason or ""
    failures = ("unparsable", "model_error", "internal_error")
    return score.state is ScoreState.UNSCORED and (
        reason.startswith("judge_") or reason in failures
    )


@dataclass(slots=True)
class ScoringSummary:
    """What became of a file: traces scored, items that were bad, and of each tier the results
    scored and those that failed, by reason. `compared`: lines on answers to one question."""

    traces: int = 0
    bad: int = 0
    compared: list[str] = field(default_factory=list)
    scored: Counter[Tier] = field(default_factory=Counter)
    failed: dict[Tier, Counter[str]] = field(default_factory=dict)

    def add(self, tier: Tier, scores: list[Score]) -> None:
        self.scored[tier] += sum(score.state is ScoreState.SCORED for score in scores)
        reasons = Counter(str(score.reason) for score in scores if _is_scorer_failure(score))
        self.failed.setdefault(tier, Counter()).update(reasons)

    def add_embedding(self, found: AnswerVectors | str) -> None:
        """Vectors of an answer, or why there are none."""
        lost = self.failed.setdefault("embedding", Counter())
        if isinstance(found, str):
            lost[found] += 1
        else:
            self.scored["embedding"] += 1

    @property
    def failed_tiers(self) -> list[Tier]:
        """The tiers that were asked and gave no result at all."""
        return [tier for tier, lost in self.failed.items() if lost and not self.scored[tier]]

    def summary_lines(self) -> list[str]:
        """For the terminal: what was compared, and of each tier that failed, how often and why."""
        found = list(self.compared)
        for tier, lost in self.failed.items():
            if lost:
                every = self.scored[tier] + lost.total()
                why = ", ".join(f"{reason} {number:,}" for reason, number in lost.most_common())
                found.append(f"{tier}: {lost.total():,} of {every:,} results unscored ({why})")
        return found


class _ScoreWriter(Protocol):
    def __init__(self, file: IO[str], pairs: list[tuple[str, str]]) -> None: ...

    def write(self, scored: ScoredTrace, trace: Trace | None) -> None:
        """`trace`: its texts, where they may be kept."""


class _JsonlWriter:
    def __init__(self, file: IO[str], pairs: list[tuple[str, str]]) -> None:
        self._file = file

    def write(self, scored: ScoredTrace, trace: Trace | None) -> None:
        self._file.write(json.dumps(scored.to_dict(), ensure_ascii=False) + "\n")


class _CsvWriter:
    """One column per metric and scorer; a cell is empty where there is no value."""

    def __init__(self, file: IO[str], pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs
        self._writer = csv.writer(file)
        names = [f"{metric}.{scorer}" for metric, scorer in pairs]
        self._writer.writerow(["trace_id", "service", "timestamp", *names])

    def write(self, scored: ScoredTrace, trace: Trace | None) -> None:
        values = {(score.metric, score.scorer): score.value for score in scored.results}
        cells = [values.get(pair) for pair in self._pairs]
        document = scored.to_dict()
        keys = [document[name] for name in ("trace_id", "service", "timestamp")]
        self._writer.writerow([*keys, *("" if cell is None else repr(cell) for cell in cells)])


class _OpenRagEvalWriter:
    """The columns of that tool, with questions, passages and answers."""

    def __init__(self, file: IO[str], pairs: list[tuple[str, str]]) -> None:
        self._writer = csv.writer(file, lineterminator="\n")  # as pandas writes it
        self._writer.writerow(OPEN_RAG_EVAL_HEADER)
        self._rows = OpenRagEvalRows()

    def write(self, scored: ScoredTrace, trace: Trace | None) -> None:
        self._writer.writerow(self._rows.row(scored, trace))


_WRITERS: dict[str, type[_ScoreWriter]] = {
    "jsonl": _JsonlWriter,
    "csv": _CsvWriter,
    "open-rag-eval": _OpenRagEvalWriter,
}


class _FileScorer:
    """Scores a trace by every tier: no sampling. What has a reference is measured against that,
    too: a file is no traffic that it could blur."""

    def __init__(
        self,
        settings: Settings,
        tiers: Mapping[Tier, TierScorer],
        answers: FileAnswers,
        labels: FileFeedback | None = None,
    ) -> None:
        self._answers = answers
        self._labels = labels
        self._scorer = Scorer(settings.builtin_scorers, ks=settings.judge.k)
        self._tiers = tiers
        self.done = ScoringSummary()
        self.expected = list(self._scorer.expected)
        self.expected += [pair for tier in tiers.values() for pair in tier.pairs]
        self.expected += self._scorer.canaries
        self.expected += labels.pairs if labels is not None else []

    async def score(self, trace: Trace) -> ScoredTrace:
        results = self._scorer.score_cheap(trace)
        asked = asyncio.gather(*(self._run(tier, trace) for tier in self._tiers.values()))
        said, found = await asyncio.gather(self._answers.add(trace), asked)
        if said is not None:
            self.done.add_embedding(said)
        for scores in found:
            results += scores
        results += self._scorer.against_reference(trace)
        if self._labels is not None:
            results += self._labels.scores(trace)
        return summarise_trace(trace, results)

    async def _run(self, tier: TierScorer, trace: Trace) -> list[Score]:
        scores: list[Score] = []
        try:
            scores = await score_tier(tier, trace, ScoringCost())
        except Exception:
            log.exception("the %s tier failed on trace %r", tier.tier, trace.trace_id[:80])
        scores = complete_results(scores, tier.pairs, trace.probability)
        self.done.add(tier.tier, scores)
        return scores


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
                why = "; ".join(f"{field or 'item'}: {why}" for field, why in item.errors)
                say(f"{path.name}: item {number}: {item.reason}: {why}")

    found = FileFeedback(readable(), settings.judge.k)
    if bad:
        say(f"{path.name}: {bad:,} items unreadable")
    return found


async def score_file(
    path: Path,
    output: Path,
    form: str,
    settings: Settings,
    say: Callable[[str], None],
    tiers: Mapping[Tier, TierScorer] | None = None,
    feedback: Path | None = None,
) -> ScoringSummary:
    """Score every trace of `path`.

    `form` is `jsonl`, `csv` or `open-rag-eval`. Lines are written in the order of the file;
    `judge.concurrency` traces are under way at a time. Raises OSError, and `SameFile` when
    `output` is `path`.
    Labels of the file `feedback` are joined to its traces.
    """
    _check_apart(path, output)
    labels = None
    if feedback is not None:
        _check_apart(feedback, output)
        labels = _read_labels(feedback, settings, say)
    source = InputFile(path)
    redactor = Redactor(settings.privacy)
    content = ContentPolicy(settings.privacy)
    counts: Counts = {}
    embedder = open_answer_embedder(settings)
    answers = FileAnswers(settings, embedder)
    whole = _FileScorer(settings, tiers or {}, answers, labels)
    most = settings.judge.concurrency if tiers else 1
    if embedder is not None:
        most = max(most, settings.consistency.embeddings.concurrency)
    done = whole.done
    under_way: deque[tuple[asyncio.Task[ScoredTrace], Trace]] = deque()

    async def write_next() -> None:
        task, trace = under_way.popleft()
        writer.write(content.scored(await task), trace if content.full else None)
        done.traces += 1

    items = source.read(settings.limits.trace_bytes)
    async with contextlib.AsyncExitStack() as stack:
        for tier in (tiers or {}).values():
            if isinstance(tier, contextlib.AbstractAsyncContextManager):
                await stack.enter_async_context(tier)
        if embedder is not None:
            await stack.enter_async_context(embedder)
        progress = stack.enter_context(FileProgress(Path(source.name).name, source.size))
        file = stack.enter_context(_open_atomically(output))
        writer = _WRITERS[form](file, whole.expected)
        for number, (item, position) in enumerate(items, start=1):
            if isinstance(item, DecodeFailure):
                done.bad += 1
                if done.bad <= MAX_SHOWN:
                    why = "; ".join(f"{field or 'item'}: {why}" for field, why in item.errors)
                    say(f"item {number}: {item.reason}: {why}")
            else:
                trace = redactor.trace(item, counts).trace
                under_way.append((asyncio.create_task(whole.score(trace)), trace))
                while len(under_way) >= most:
                    await write_next()
            if tiers or number % 256 == 0:
                progress.read(number, done.bad, position)
        while under_way:
            await write_next()
    done.compared += answers.lines()
    if labels is not None and labels.used < labels.number:
        say(f"{labels.number - labels.used:,} of {labels.number:,} items of feedback have no trace")
    if source.empty:
        say(f"{source.name}: the file is empty")
    for (name, where), lost in sorted(counts.items()):
        if name == "ragmeter_redaction_failures_total":
            say(f"{lost:,.0f} texts dropped: {', '.join(value for _, value in where)}")
    return done
