"""Users' own metrics: a function of a trace with a spec, scored like a built-in metric.

`ragmeter.scoring.own_metrics` loads them by the entry points of installed packages;
docs/own-metrics.md says how one is written.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import NoScore, Score, make_score
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter.metrics")

CUSTOM_SCORER = "own"
"""The scorer of all that are of the traffic."""

CANARY_CUSTOM_SCORER = "canary/own"
"""The scorer of all that are of canaries: a population of its own."""

CUSTOM_METRICS: list[CustomMetric] = []
"""Those of this process; `ragmeter.metrics.registry.install` adds one."""

_MAX_VALUE = 1e15  # as in the windows: beyond it a value is no measurement
_MAX_REASONS = 16  # of one metric: reasons become label values, and each is a series

_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_REASON = re.compile(r"[a-z][a-z0-9_]{0,39}")
_RESERVED_NAME = re.compile(
    # what names of ours in Prometheus end with, and what others give a meaning
    r".*_(?:at_k|total|sum|count|bucket|info|created|ratio|mean|ci_lower|ci_upper"
    r"|effective_samples|unscored)"
    # what is no metric of a trace
    r"|(?:index|consistency|latency|slo|traces?|canaries)(?:_.*)?"
)
_MAX_NAME = 60
_MAX_TEXT = 500  # characters of what a spec says

Formula = Callable[[Trace], "float | NoScore"]


class CustomMetric:
    """`spec` and the value of a trace: a number, or the `Gap` why there is none. Made by `metric`.

    `rules` are alert rules that hold by default, as in a file of rules.
    """

    __slots__ = ("_formula", "_reasons", "rules", "spec")

    def __init__(
        self, spec: MetricSpec, formula: Formula, rules: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self.spec = spec
        self.rules = tuple(rules)
        self._formula = formula
        self._reasons: set[str] = set()

    @property
    def scorer(self) -> str:
        """Whose population it is of."""
        return self.spec.scorers[0]

    def __call__(self, trace: Trace) -> float | NoScore:
        """The value of a trace, as it is."""
        return self._formula(trace)

    def score(self, trace: Trace) -> Score:
        """The result of a trace, whatever the formula does: an exception, or something that is no
        value of this metric, leaves `unscored`."""
        try:
            value = self._checked_value(self._formula(trace))
        except Exception:
            log.exception("metric %s failed on trace %r", self.spec.name, trace.trace_id[:80])
            value = NoScore("internal_error")
        return make_score(self.spec.name, trace, value, self.scorer)

    def _checked_value(self, value: object) -> float | NoScore:
        if isinstance(value, NoScore):
            applies = bool(value.applies)
            return (
                NoScore(value.reason, applies)
                if self._fits(value.reason)
                else NoScore("other", applies)
            )
        spec = self.spec
        if not isinstance(value, Real):  # NumPy's numbers are
            return NoScore("bad_value")
        number = float(value)
        high = _MAX_VALUE if spec.high is None else spec.high
        if not spec.low <= number <= high or (spec.kind == "ratio" and number not in (0, 1)):
            return NoScore("bad_value")
        return number

    def _fits(self, reason: object) -> bool:
        if not isinstance(reason, str) or not _REASON.fullmatch(reason):
            return False
        if reason not in self._reasons:
            if len(self._reasons) >= _MAX_REASONS:
                return False
            self._reasons.add(reason)
        return True


def metric(
    *,
    name: str,
    kind: Literal["mean", "ratio"],
    meaning: str,
    formula: str,
    needs: str,
    source: str,
    low: float = 0.0,
    high: float | None = 1.0,
    good: Literal["higher", "lower"] | None = "higher",
    rules: Sequence[Mapping[str, Any]] = (),
    canaries: bool = False,
) -> Callable[[Formula], CustomMetric]:
    """Turns a function of a trace into a metric. ValueError for what can't be one.

    The function is called for every trace that is no canary, one after the other, also those that
    failed; with `canaries` for every trace with a `reference`, and no other. It must be quick, and
    do no I/O. What it returns lies in [`low`, `high`] (`high` None:
    unbounded), and is 0 or 1 where the kind is `ratio`.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise ValueError(
            f"{name!r}: a name has words of a-z and 0-9 joined by _, {_MAX_NAME} at most"
        )
    if _RESERVED_NAME.fullmatch(name):
        raise ValueError(f"{name!r}: names that begin or end so are taken")
    if kind not in ("mean", "ratio") or good not in ("higher", "lower", None):
        raise ValueError(f"{name}: `kind` is mean or ratio, `good` is higher, lower or None")
    if not math.isfinite(low) or (high is not None and not (low < high < math.inf)):
        raise ValueError(f"{name}: a finite `low` below `high` is needed")
    if kind == "ratio" and (low, high) != (0.0, 1.0):
        raise ValueError(f"{name}: a ratio goes from 0 to 1")
    texts = {"meaning": meaning, "formula": formula, "needs": needs, "source": source}
    for what, text in texts.items():
        if not isinstance(text, str) or not text.strip() or len(text) > _MAX_TEXT:
            raise ValueError(f"{name}: `{what}` is a text of 1 to {_MAX_TEXT} characters")
        if not text.isprintable():
            raise ValueError(f"{name}: `{what}` has characters that do not print")
    for rule in rules:
        if not isinstance(rule, Mapping):
            raise ValueError(f"{name}: the rule {rule!r} is no mapping")
    spec = MetricSpec(
        name=name,
        kind=kind,
        tier="cheap",
        scorers=(CANARY_CUSTOM_SCORER if canaries else CUSTOM_SCORER,),
        meaning=meaning,
        formula=formula,
        needs=needs,
        low=float(low),
        high=None if high is None else float(high),
        good=good,
        source=source,
    )
    return lambda function: CustomMetric(spec, function, rules)


def score_custom(trace: Trace, scorer: str) -> list[Score]:
    """One result for each that is installed and of this population, in their order."""
    return [one.score(trace) for one in CUSTOM_METRICS if one.scorer == scorer]
