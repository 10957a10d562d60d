"""The value of a rule's condition, and whether the condition holds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ragmeter.alerts.rules import AlertRule

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class ConditionValue:
    """The value of a rule's condition.

    Args:
        tested: The one of `value`, `lower` and `upper` that the rule compares.
        value: The estimate, with its 95 % interval `lower` to `upper`.
        threshold: In place of the rule's own: of a rule with `relative_to` the multiple of what
            the metric is over that window.
        reasons: Of an unscored rule: how many results failed, by reason.
    """

    tested: float
    value: float
    lower: float | None
    upper: float | None
    samples: int
    effective_samples: float
    threshold: float | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)


def condition_holds(rule: AlertRule, value: ConditionValue) -> bool:
    """Return whether the condition of a rule is true of a value."""
    if rule.absence:
        return value.tested == 0
    threshold = rule.threshold if value.threshold is None else value.threshold
    return _OPERATORS[rule.op](value.tested, threshold)
