"""A report whose every name and text is out to harm."""

from __future__ import annotations

from typing import Any

from ragmeter.offline.report.run import TraceText
from ragmeter.offline.report.summary import ScoreReport, build_report

from tests.offline.report.runs import run_of

__all__ = ["ESCAPE", "hostile", "usual"]

ESCAPE = "<img src=x onerror=alert(1)>\u202e\x1b[2J</style><script>alert(2)</script>"


def usual() -> ScoreReport:
    first = run_of([0.1 * n for n in range(10)] + [None], name="gpt-4")
    second = run_of([0.1 * n for n in range(4, 11)] * 2, name="llama")
    return build_report([first, second], paired_by="trace_id", worst=2)


def hostile() -> ScoreReport:
    """With names long and wild, a formula of TeX, and signs that the font lacks."""
    words = {"text": ESCAPE + "b" * 5_000, "evidence": {"passage_id": ESCAPE, "text": ESCAPE}}
    broken: list[Any] = [None, {"start": "0", "end": 9, "text": "x"}, {"start": 0, "end": 9}]
    spans = [*broken, *({"start": n, "end": 9, **words} for n in (5, 0, -1))] + [words] * 5
    detail = {"unsupported_spans": spans}
    values = {f"{ESCAPE}{n}": value for n, value in enumerate((0.1, 0.5, 0.9))}
    runs = [
        run_of(values, name=name, detail=detail)
        for name in (ESCAPE, "$\\frac{1}$ " + "long " * 40, "模型 \U0001f600")
    ]
    for run in runs:
        run.notes = [ESCAPE]
        run.texts = {trace_id: TraceText(ESCAPE, ESCAPE + "a" * 5_000) for trace_id in run.ids}
    return build_report(runs, paired_by="trace_id")
