"""The part `objectives`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from ragmeter.alerts.promql import RuleTree
from ragmeter.config.settings import Settings
from ragmeter.core.arithmetic import WEIGHT_ONE
from ragmeter.core.counters import Counters
from ragmeter.parts.contract import Part, PartContext, ScoredBatch, section_of
from ragmeter.parts.objectives.burn_rates import burn_rate_rules, describe_alerts
from ragmeter.parts.objectives.events import check_objectives, objective_events
from ragmeter.parts.objectives.settings import ObjectivesSettings, SloSettings


class ObjectivesPart(Part[None]):
    """Counts events of objectives; the counters are all its state."""

    name = "objectives"
    package = __package__
    settings = ObjectivesSettings
    state: ClassVar[Any] = None
    prometheus_alerts = describe_alerts()

    def __init__(self, slos: Sequence[SloSettings], counters: Counters) -> None:
        self._slos = slos
        self._counters = counters

    @classmethod
    def build(cls, context: PartContext) -> Self:
        """Build the part.

        Raises:
            ConfigError: An objective names an unknown metric or scorer.
        """
        cls.check(context.settings)
        return cls(context.section(ObjectivesSettings).slos, context.counters)

    @classmethod
    def check(cls, settings: Settings) -> None:
        """Check the metrics and scorers of the objectives."""
        check_objectives(section_of(settings, ObjectivesSettings).slos)

    @classmethod
    def prometheus_rules(cls, settings: Settings, runbooks: str) -> Sequence[RuleTree]:
        """Return the burn rates of the objectives."""
        slos = section_of(settings, ObjectivesSettings).slos
        return burn_rate_rules(slos, runbooks) if slos else []

    def observe(self, run: ScoredBatch, now: float | None) -> None:
        """Count the events of scored traces, each with its weight."""
        events = Counter(
            (scored.service, event)
            for scored in run.traces
            for event in objective_events(scored, self._slos)
        )
        for (service, event), number in events.items():
            key = (("service", service), ("slo", event.slo))
            weight = event.weight / WEIGHT_ONE
            bad = weight if event.bad else 0.0
            self._counters.inc("rag_slo_events_total", key, weight * number)
            # a series that starts at 0 loses no first increase to `rate()`
            self._counters.inc("rag_slo_bad_events_total", key, bad * number)
            self._counters.inc("rag_slo_bad_events_squared_total", key, bad * bad * number)
