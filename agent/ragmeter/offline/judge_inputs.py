"""Traces as the judge is shown them, kept in a file to be judged again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ragmeter.config.settings import Settings
from ragmeter.console.terminal import check_output_path
from ragmeter.core.errors import UsageError
from ragmeter.ingest.native import DecodedTrace, DecodeFailure
from ragmeter.trace import Trace

# A field of the traces that `--keep-judge-inputs` writes: the version of their form. They are
# native traces otherwise, which every command reads.
_JUDGE_INPUT = "judge_input"


def judge_input_line(trace: Trace) -> str:
    """Return the line that keeps a trace."""
    document = trace.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return json.dumps({_JUDGE_INPUT: 1, **document}, ensure_ascii=False) + "\n"


def check_judge_input(item: DecodedTrace) -> DecodedTrace | DecodeFailure:
    """Refuse any other trace: nothing would redact it on its way to the judge."""
    if json.loads(item.body).get(_JUDGE_INPUT) == 1:
        return item
    why = "--keep-judge-inputs has not written this trace, or a newer version has"
    return DecodeFailure.of_whole("no_judge_input", why, item.body)


def check_judge_inputs(
    path: Path, output: Path, inputs: Sequence[Path], settings: Settings
) -> None:
    """Refuse to keep what the judge is shown where that cannot be, or may not.

    Raises:
        UsageError: There is no judge, texts may not be kept, or the file is another one of the run.
    """
    if settings.judge.base_url is None:
        raise UsageError("--keep-judge-inputs: no judge is configured (judge.base_url)")
    if settings.privacy.content != "full":
        raise UsageError("--keep-judge-inputs writes texts, which privacy.content does not allow")
    if path.resolve() == output.resolve():
        raise UsageError("--keep-judge-inputs: the scores go into the same file")
    check_output_path("--keep-judge-inputs", path, inputs)
