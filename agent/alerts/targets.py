"""What the rules look at: the services, segments, objectives and series that each covers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from agent.alerts.conditions import BudgetsLike, WindowsLike
from agent.alerts.rules import Rule
from agent.fingerprints import split_scorer

__all__ = ["Held", "Targets"]

Held = Mapping[tuple[str, str], set[tuple[str, str]]]
"""(metric, scorer) by (rule, service)."""


class Targets:
    """`rules` in the order of their importance within a severity; `budgets` knows the objectives
    that burn rules look at, and without it they cover nothing."""

    def __init__(self, rules: Sequence[Rule], budgets: BudgetsLike | None) -> None:
        self._rules = rules
        self._budgets = budgets
        self._covering: dict[str, list[Rule]] = {}  # what the globs say, by service

    def of(self, windows: WindowsLike, held: Held) -> Iterator[tuple[Rule, str, str]]:
        """Every rule with each service and subject it covers, in an order that is always the same.

        A rule without a series to look at is left out here, but for the pairs that it has `held`
        alerts on.
        """
        services = sorted(windows.services())
        if len(self._covering) > 2 * len(services) + 1_000:  # services come and go
            self._covering.clear()
        names = set(windows.names)
        # Not rule by rule: a service's series are asked for once in each round.
        for severity in ("critical", "warning"):
            for service in services:
                segments: list[str] | None = None
                series: dict[str, set[tuple[str, str]]] = {}
                for rule in self._rules_of(service):
                    if rule.burn is not None:
                        if rule.severity == severity and self._budgets is not None:
                            for name in self._budgets.names(service):
                                if fnmatchcase(name, rule.burn.slo):
                                    yield rule, service, f"slo={name}"
                        continue
                    if rule.severity != severity or rule.window not in names:
                        continue
                    if rule.unscored is not None:
                        pairs = set(windows.failing(service, rule.window))
                        for metric, scorer in sorted(pairs | held.get((rule.name, service), set())):
                            if rule.unscored.matches(metric, scorer):
                                yield rule, service, f"{metric} {scorer}"
                        continue
                    wanted = [""]
                    if rule.segment is not None:
                        if segments is None:
                            segments = sorted(windows.segments(service))
                        prefix = f"{rule.segment}="
                        wanted = [name for name in segments if name.startswith(prefix)]
                    for segment in wanted:
                        if rule.metric is not None:
                            if segment not in series:
                                series[segment] = {
                                    (metric, split_scorer(scorer)[0])
                                    for metric, scorer in windows.series(service, segment)
                                }
                            if (rule.metric, rule.scorer) not in series[segment]:
                                continue
                        yield rule, service, segment

    def _rules_of(self, service: str) -> list[Rule]:
        found = self._covering.get(service)
        if found is None:
            found = self._covering[service] = [rule for rule in self._rules if rule.covers(service)]
        return found
