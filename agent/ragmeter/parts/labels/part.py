"""The part `labels`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from random import Random
from typing import Any, ClassVar, Self, cast

from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.feedback import PEOPLE
from ragmeter.core.label_bounds import OTHER_LABEL
from ragmeter.metrics.merged_labels import effective_labels
from ragmeter.parts.contract import (
    CountedResults,
    DocumentKind,
    Event,
    PageHome,
    Part,
    PartContext,
    PartHome,
    PartPages,
    ScoredBatch,
    ServiceLink,
    TraceName,
    section_of,
)
from ragmeter.parts.labels.documents import DOCUMENTS, LabelDocument
from ragmeter.parts.labels.join import LabelJoin
from ragmeter.parts.labels.places import LABEL_PAGE, choose_place
from ragmeter.parts.labels.pool import LabelPool, PoolState
from ragmeter.parts.labels.settings import LabelsSettings, draws_labels
from ragmeter.parts.labels.traces import TracesState
from ragmeter.windows.people_agreement import Results

LabelsState = TracesState | PoolState
"""A row of the state."""


class LabelsPart(Part[LabelsState]):
    """Joins the labels of people to their traces, and keeps traces that people may be asked about.

    Attributes:
        pool: The traces that people may be asked to label.
    """

    name = "labels"
    package = __package__
    settings = LabelsSettings
    state: ClassVar[Any] = LabelsState
    documents = DOCUMENTS
    form_paths = (LABEL_PAGE,)

    def __init__(
        self,
        pool: LabelPool,
        join: LabelJoin,
        counted: CountedResults,
        counters: Counters,
        stored_scores: Callable[[str, str], Results],
    ) -> None:
        self.pool = pool
        self._join = join
        self._counted = counted
        self._counters = counters
        self._stored_scores = stored_scores

    @classmethod
    def build(cls, context: PartContext) -> Self:
        """Build the part, with no trace and no labels."""
        settings = context.settings
        states = round(1 / context.share)
        join = LabelJoin(settings, context.counted, context.counters, states)
        pool = LabelPool(settings.sampling, join.horizon, Random(), states)
        return cls(
            pool=pool,
            join=join,
            counted=context.counted,
            counters=context.counters,
            stored_scores=context.stored_scores,
        )

    @classmethod
    def accepts(cls, settings: Settings) -> DocumentKind | None:
        """Return the kind of the labels, None where no trace is remembered."""
        remembered = section_of(settings, LabelsSettings).feedback.traces
        return cls.documents if remembered else None

    def observe(self, run: ScoredBatch, now: float | None) -> None:
        """Remember traces, join the labels that wait for them, and fill the pool."""
        self._join.remember(run.arrivals)
        for scored in run.traces:
            self.pool.offer(scored)

    def advance(self, now: float) -> tuple[Event, ...]:
        """Give up labels that have waited too long, and traces that can no longer be labelled."""
        self._join.expire(now)
        self.pool.expire(now)
        return ()

    def receive(self, document: LabelDocument, at: float, source: str) -> str:
        """Count labels as of Unix time `at`, or let them wait for their trace."""
        self._counters.inc("ragmeter_feedback_received_total", (("source", source),))
        if document.scorer == PEOPLE:
            services = None
            if document.service is not None:
                # the trace may have come when there were too many services
                services = (self._counted.label(document.service), OTHER_LABEL)
            self.pool.label(
                document.trace,
                services,
                effective_labels(document.labels).verdict.given,
                self._stored_scores,
            )
        return self._join.receive(
            document.trace,
            document.service,
            document.scorer,
            at=at,
            given=document.given(at),
        )

    def counts(self, service: str) -> bool:
        """Return whether traces of a service are counted here."""
        return service in self._counted.windows.services()

    def resample(self, settings: SamplingSettings) -> None:
        """Let traces enter the pool by other shares from now on."""
        self.pool.resample(settings)

    def kept_traces(self) -> Set[TraceName]:
        """Return the traces of the pool, whose texts are shown to who labels."""
        return self.pool.keys()

    def take_kept(self) -> Set[TraceName]:
        """Return the traces that have entered the pool since the last call."""
        return self.pool.take_entered()

    def samples(self) -> Iterable[GaugeSample]:
        """Return how many labels wait and how many traces are remembered."""
        return self._join.gauges()

    @classmethod
    def routes(cls, settings: Settings, home: PartHome, pages: PartPages) -> Iterable[Any]:
        """Return the routes of the desk, or those that say why there is none."""
        from ragmeter.parts.labels.desk import LabelDesk, label_routes  # late: it needs aiohttp

        return label_routes(LabelDesk(home, pages) if draws_labels(settings) else None)

    @classmethod
    def links(cls, settings: Settings) -> Sequence[ServiceLink]:
        """Return the page on which people label traces, if any are drawn."""
        return (ServiceLink(LABEL_PAGE, "label answers"),) if draws_labels(settings) else ()

    @classmethod
    def page(cls, home: PageHome, service: str | None) -> Mapping[str, Any] | None:
        """Return how well the scorers agree with the labels of a service."""
        if service is None:
            return None
        with home.lock():
            place = choose_place(cast(Sequence[Self], home.part_places(cls.name)), service)
            agreement = [] if place is None else place.pool.agreement(service)
        return {"agreement": agreement} if agreement else None

    @property
    def touched(self) -> bool:
        """Whether traces were drawn or forgotten since the last `changes`."""
        return self.pool.touched

    def changes(self) -> Mapping[str, LabelsState | None]:
        """Return what changed of traces, waiting labels and the pool."""
        return {**self._join.changes(), **self.pool.changes()}

    def restore(self, rows: Mapping[str, LabelsState]) -> None:
        """Load traces, waiting labels and the pool."""
        found: list[Any] = list(rows.values())
        self._join.restore(found)
        self.pool.restore(found)
