"""Users' own metrics: a function of a trace with a spec, scored like a built-in metric.

`ragmeter.metrics.registry` loads them from entry points of installed packages; docs/python.md
describes how to write one.
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
from ragmeter.core.thread_safety import one_at_a_time
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

CUSTOM_SCORER = "own"  # of metrics of the traffic
CANARY_CUSTOM_SCORER = "canary/own"  # of metrics of canaries

_MAX_VALUE = 1e15  # as in the windows
_MAX_REASONS = 16  # of one metric: each reason becomes a label value, and so a series

_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_REASON = re.compile(r"[a-z][a-z0-9_]{0,39}")
_RESERVED_NAME = re.compile(
    # endings of gauges in Prometheus
    r".*_(?:at_k|total|sum|count|bucket|info|created|ratio|mean|ci_lower|ci_upper"
    r"|effective_samples|unscored)"
    # gauges that are no metrics of a trace
    r"|(?:index|latency|slo|traces?|canaries)(?:_.*)?"
)
_MAX_NAME = 60
_MAX_TEXT = 500  # characters of a spec's text

Formula = Callable[[Trace], "float | NoScore"]


class CustomMetric:
    """A user's own metric, made by the decorator `metric`.

    Args:
        spec: The spec; its one scorer is `CUSTOM_SCORER` or `CANARY_CUSTOM_SCORER`.
        formula: Returns the value of a trace, or the reason why there is none.
        rules: Default alert rules, as in a file of rules.
    """

    __slots__ = ("_formula", "_logged", "_reasons", "rules", "spec")

    def __init__(
        self, spec: MetricSpec, formula: Formula, rules: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self.spec = spec
        self.rules = tuple(rules)
        self._formula = formula
        self._reasons: set[str] = set()
        self._logged: set[type[BaseException]] = set()  # kinds of errors

    @property
    def scorer(self) -> str:
        """The scorer of its results."""
        return self.spec.scorers[0]

    def __call__(self, trace: Trace) -> float | NoScore:
        """Return what the formula returns, unchecked."""
        return self._formula(trace)

    def score(self, trace: Trace) -> Score:
        """Score a trace; an exception or an invalid value of the formula gives `unscored`.

        Several threads score, and a user's function need not know of that: it runs in one of them
        at a time.
        """
        try:
            value = self._checked_value(_evaluate(self._formula, trace))
        except (Exception, SystemExit) as error:  # the exit of a library must not be the agent's
            # a formula that always fails must not fill the log: the results are counted
            level = logging.DEBUG if type(error) in self._logged else logging.ERROR
            self._logged.add(type(error))
            text = "metric %s failed on trace %r"
            log.log(level, text, self.spec.name, trace.trace_id[:80], exc_info=True)
            value = NoScore(Reason.INTERNAL_ERROR)
        return make_score(self.spec.name, trace, value, self.scorer)

    def _checked_value(self, value: object) -> float | NoScore:
        if isinstance(value, NoScore):
            valid = self._is_valid_reason(value.reason)
            return NoScore(value.reason if valid else Reason.OTHER, bool(value.applies))
        spec = self.spec
        if not isinstance(value, Real):  # NumPy's numbers are
            return NoScore(Reason.BAD_VALUE)
        number = float(value)
        high = _MAX_VALUE if spec.high is None else spec.high
        if not spec.low <= number <= high or (spec.kind == "ratio" and number not in (0, 1)):
            return NoScore(Reason.BAD_VALUE)
        return number

    def _is_valid_reason(self, reason: object) -> bool:
        if not isinstance(reason, str) or not _REASON.fullmatch(reason):
            return False
        if reason not in self._reasons:
            if len(self._reasons) >= _MAX_REASONS:
                return False
            self._reasons.add(reason)
        return True


@one_at_a_time
def _evaluate(formula: Formula, trace: Trace) -> float | NoScore:
    return formula(trace)


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
    """Turn a function of a trace into a metric.

    The function runs on every trace of the traffic, failed ones too, one after the other. It must
    be quick and do no I/O.

    Args:
        name: Lower-case words of a-z and 0-9 joined by _; gauges are named after it.
        kind: `mean`, or `ratio`, whose values are 0 or 1.
        meaning: A line that describes the quantity.
        formula: A line that describes how to compute it.
        needs: The fields of a trace that it needs.
        source: The source of the definition.
        low: Least value.
        high: Highest value, or None.
        good: The direction that is better, or None.
        rules: Default alert rules, as in a file of rules.
        canaries: Run on traces with a `reference` instead of traffic.

    Raises:
        ValueError: The name is taken or invalid, or a text or bound is invalid.
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
