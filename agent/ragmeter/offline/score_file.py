"""Score the traces of a file: `ragmeter score`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ragmeter.config.settings import Settings
from ragmeter.console.terminal import FileProgress
from ragmeter.core.feedback import Feedback
from ragmeter.core.tiers import Tier, TierScorer
from ragmeter.ingest.feedback_files import read_feedback
from ragmeter.ingest.files import MAX_SHOWN, InputFile
from ragmeter.ingest.native import DecodedTrace, DecodeFailure
from ragmeter.offline.judge_inputs import check_judge_input, check_judge_inputs, judge_input_line
from ragmeter.offline.score_output import check_apart, open_output, open_writer
from ragmeter.offline.scoring import OfflineScorer
from ragmeter.offline.scoring_summary import ScoringSummary
from ragmeter.offline.whole_file import FileFeedback

# Traces between two updates of the progress bar, unless a slow tier makes each of them slow.
_PROGRESS_EVERY = 256


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
    check_apart(path, output)
    if judge_inputs is not None:
        check_judge_inputs(judge_inputs, output, [path, *filter(None, [feedback])], settings)
    labels = None
    if feedback is not None:
        check_apart(feedback, output)
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
                    item = check_judge_input(item)
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
                file = files.enter_context(open_output(output))
                write = files.enter_context(open_writer(form, file, scorer.expected))
                inputs = files.enter_context(open_output(judge_inputs)) if judge_inputs else None
                async for scored, trace in scorer.score_all(traces()):
                    write(scored, trace)
                    if inputs is not None and trace is not None:
                        inputs.write(judge_input_line(trace))
    summary.seconds = time.monotonic() - start
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
                say(f"{path.name}: item {number}: {item.describe()}")

    labels = FileFeedback(readable(), settings.judge.k)
    if bad:
        say(f"{path.name}: {bad:,} items unreadable")
    return labels
