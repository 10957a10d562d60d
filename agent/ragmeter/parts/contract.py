"""The contract of a part: one feature of a service, pure, deterministic and restorable.

A part brings its settings, its state as typed rows, its metric families (`families.yaml`), its
fragment of the pages (`page.html`), the kind of documents that it reads beside traces, its default
rules (`rules.yaml`), those for Prometheus (`prometheus_rules.yaml`, or code where they hang on
settings) and its runbooks (`runbooks.yaml`). Parts know nothing of each other, of files, topics or
ports: `ragmeter.aggregate` runs them over the scored traces, the two homes write the same rows into
SQLite and into topics, and the exporters show their samples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from pydantic_core import from_json

from ragmeter.alerts.alert import Alert, Severity
from ragmeter.alerts.promql import RuleTree
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.base import SettingsSection
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.native import DecodeFailure
from ragmeter.windows.windows import Windows

Event = Alert
"""What a part tells when time moves on: an alert that fires or has resolved."""

StateT = TypeVar("StateT")
SectionT = TypeVar("SectionT", bound=SettingsSection)
_ViewT = TypeVar("_ViewT")


def section_of(settings: Settings, kind: type[SectionT]) -> SectionT:
    """Return the settings that a part has brought: `ragmeter.app.settings` loads them all."""
    if not isinstance(settings, kind):
        raise TypeError(f"these settings hold no {kind.__name__}")
    return settings


class Document(Protocol):
    """What a part reads beside traces: it belongs to a service and has a time of its own."""

    @property
    def service(self) -> str | None:
        """The service as the sender names it, None where the documents need not name it."""

    @property
    def timestamp(self) -> datetime:
        """The time that the sender gives."""


@dataclass(frozen=True)
class DocumentKind:
    """A kind of JSON documents, told apart from traces by the prefix of their `schema`.

    Args:
        path: Where documents are posted.
        schema: The `schema` of a document: its kind, a slash and the version that is read.
        max_bytes: Bytes of one document.
        max_waiting: Documents that may wait for their answer at a time.
        decode: Decodes one document.
        decode_body: Decodes every document of a posted body; may raise `BodyLimitExceeded`.
        replies: The names under which a reply counts the outcomes of `Part.receive`.
        topic: The field of `kafka.topics` with the topic that has these documents alone; empty
            where they come in that of the traces.
        read_file: Decodes every document of a file, where files may have them.
        encode_sent: Returns the JSON that Kafka workers send on to the partition of the service;
            None for the document as it came.
        decode_sent: Reads back what `encode_sent` returned.
    """

    path: str
    schema: str
    max_bytes: int
    max_waiting: int
    decode: Callable[[bytes], Document | DecodeFailure]
    decode_body: Callable[[bytes], Iterator[Document | DecodeFailure]]
    replies: Mapping[str, str] = field(default_factory=dict)
    topic: str = ""
    read_file: Callable[[Path], Iterator[Document | DecodeFailure]] | None = None
    encode_sent: Callable[[Any], bytes | DecodeFailure] | None = None
    decode_sent: Callable[[bytes], Document | DecodeFailure] | None = None

    @property
    def schema_prefix(self) -> str:
        """How the `schema` of every version begins."""
        return self.schema.partition("/")[0] + "/"

    @cached_property
    def _mark(self) -> bytes:
        return self.schema_prefix.encode()

    def may_match(self, value: bytes) -> bool:
        """Return whether a message may be a document of this kind, without parsing it."""
        return self._mark in value and len(value) <= self.max_bytes

    def matches(self, value: bytes) -> bool:
        """Return whether a message is a document of this kind, of any version of its schema."""
        if not self.may_match(value):
            return False
        try:
            document = from_json(value)
        except ValueError:
            return False
        schema = document.get("schema") if isinstance(document, dict) else None
        return isinstance(schema, str) and schema.startswith(self.schema_prefix)


class CountedResults(Protocol):
    """What is counted of a state of services, and how results enter it after their trace."""

    @property
    def windows(self) -> Windows:
        """The windows of the services."""

    def amend(self, old: ScoredTrace, new: ScoredTrace, segments: Sequence[str]) -> bool:
        """Replace results of a trace that was counted in `segments`, both partial."""

    def label(self, service: str) -> str:
        """Return the bounded name of a service in the windows, `__other__` if it has none."""


class FindView(Protocol):
    """Finds what a part offers to others."""

    def __call__(self, view: type[_ViewT], /) -> _ViewT:
        """Return the part that offers a view, or what holds without one."""


def find_nothing(view: type[_ViewT], /) -> _ViewT:
    """Return what holds of a view that no part offers."""
    return view()


@dataclass(frozen=True)
class PartContext:
    """What a part is built with.

    Args:
        settings: The settings of the agent.
        counters: Where the part counts events.
        count_overflow: Counts a label value beyond its limit, under the name of the label.
        counted: The windows, where results may come after their trace.
        stored_scores: Returns the stored scores of a trace, of a bounded service and a trace id.
        windows: The windows of all services, to read.
        share: Part of the installation's services that is expected here.
        find: Returns what another part offers (`ragmeter.parts.views`), once all are built.
        rules: The alert rules in force.
    """

    settings: Settings
    counters: Counters
    count_overflow: Callable[[str], None]
    counted: CountedResults
    stored_scores: Callable[[str, str], Sequence[Mapping[str, Any]]] = lambda service, trace_id: ()
    windows: Windows = field(default_factory=Windows)
    share: float = 1.0
    find: FindView = field(default=find_nothing)
    rules: Sequence[AlertRule] = ()

    def section(self, kind: type[SectionT]) -> SectionT:
        """Return the settings of the part itself."""
        return section_of(self.settings, kind)


class PrometheusAlert(NamedTuple):
    """An alert that Prometheus raises, as its runbook describes it; `keep` is in seconds."""

    name: str
    severity: Severity
    condition: str
    keep: float


class ServiceLink(NamedTuple):
    """A page about a service: its path, in which `{service}` stands for the name, and its title."""

    path: str
    title: str


TraceName = tuple[str, str]
"""The bounded service and the id of a trace."""


class Arrival(NamedTuple):
    """A trace that arrived in time and for the first time.

    Args:
        trace: The trace under its bounded names.
        segments: The segments it was counted in.
        sent_as: Its service as it was sent.
    """

    trace: ScoredTrace
    segments: tuple[str, ...]
    sent_as: str


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """Scored traces of any services, under bounded names, in the order in which they were counted.

    Args:
        traces: All of them, with those that came too late for every window, canaries, and results
            that slow tiers have finished (`partial`).
        arrivals: The traffic among them.
        canaries: The canaries among them, each once, whenever its results come.
        later: Results of traffic that came after their trace: of slow tiers, which are among
            `traces`, too, and of people's labels, which are not.
    """

    traces: Sequence[ScoredTrace]
    arrivals: Sequence[Arrival]
    canaries: Sequence[ScoredTrace]
    later: Sequence[Arrival] = ()


class PageHome(Protocol):
    """The agent or worker, as the fragments of a part on pages see it."""

    @property
    def windows(self) -> Windows:
        """The windows of all services. Hold `lock()`."""

    def lock(self) -> AbstractContextManager[Any]:
        """Return the lock that the writing thread takes."""

    def part_places(self, name: str) -> Sequence[Part[Any]]:
        """Return a part in each state of services. Hold `lock()`."""


class PartHome(PageHome, Protocol):
    """The agent or worker, as the handlers of a part see it."""

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        """Return a kept trace under `trace` and its scores under `results`, or None."""

    def receive_at(self, place: Part[Any], documents: Sequence[Document], source: str) -> list[str]:
        """Have a part count documents, durable on return; may raise `Unavailable`."""


class PartPages(Protocol):
    """The pages of the metrics port, as the handlers of a part make them."""

    def page(
        self,
        template: str,
        title: str,
        context: Mapping[str, Any],
        trace: TraceName | None = None,
    ) -> str:
        """Render a template (`package:name`) in the frame of all pages.

        Args:
            template: Its name, after the package of the part and a colon.
            title: The title of the page.
            context: What the template shows.
            trace: A kept trace, which the template has as `page`.
        """


class Part(ABC, Generic[StateT]):
    """One feature of a service.

    Attributes:
        name: Its name, which no other part has; the rows of its state begin with it.
        package: The package that holds its data files.
        settings: Its settings, a model whose fields are keys of the whole configuration.
        state: The type of a row of its state: what pydantic can validate and dump.
        documents: The kind of documents that it reads, None if it reads none.
        prometheus_alerts: The alerts among its rules for Prometheus, each once.
        form_paths: Those of its routes that a form on a page of its own posts to. The handler must
            check a token that only the page has.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    settings: ClassVar[type[SettingsSection] | None] = None
    state: ClassVar[Any]
    documents: ClassVar[DocumentKind | None] = None
    prometheus_alerts: ClassVar[Sequence[PrometheusAlert]] = ()
    form_paths: ClassVar[Collection[str]] = ()

    @classmethod
    @abstractmethod
    def build(cls, context: PartContext) -> Self:
        """Build the part, without any state."""

    @classmethod
    def accepts(cls, settings: Settings) -> DocumentKind | None:
        """Return the kind of documents that it reads under these settings."""
        return cls.documents

    @classmethod
    def check(cls, settings: Settings) -> None:
        """Check what the types of the settings cannot.

        Raises:
            ConfigError: A setting cannot work.
        """

    @classmethod
    def prometheus_rules(cls, settings: Settings, runbooks: str) -> Sequence[RuleTree]:
        """Return the rules on its families for Prometheus; `runbooks` is their base URL."""
        return ()

    def learn(self, arrivals: Sequence[Arrival], turn: int) -> None:
        """Learn from traffic what must be known before the next turn is counted.

        It is called turn by turn, and `observe` has the same traffic later, for many turns at once.

        Args:
            arrivals: Traffic of one turn, in the order in which it was counted.
            turn: The stretch of the queue that it belongs to (see `ControlSource`).
        """

    def observe(self, run: ScoredBatch, now: float | None) -> None:
        """Count a run of scored traces; `now` is the event time reached."""

    def advance(self, now: float) -> Sequence[Event]:
        """Move event time to `now`, a step at which rules are evaluated, and return what moved."""
        return ()

    def evaluate(self, now: float, changed: Mapping[str, Collection[str]]) -> Sequence[Event]:
        """Evaluate rules over the windows when every part has advanced, and return what moved.

        Args:
            now: The event time of the step.
            changed: The windows that changed since the last step, by service.
        """
        return ()

    def hear(self, moved: Sequence[Event], at: float) -> Sequence[Event]:
        """Take in alerts that moved at event time `at`; return what moved with them."""
        return ()

    def next_due(self) -> float:
        """Return the event time at which `advance` is next needed though no trace comes."""
        return math.inf

    def alerts(self) -> Sequence[Alert]:
        """Return copies of the alerts that it holds: firing and lately resolved."""
        return ()

    @property
    def refused_alerts(self) -> int:
        """How many alerts of its own it had no room for."""
        return 0

    def receive(self, document: Any, at: float, source: str) -> str:
        """Count a document at Unix time `at`, and return its outcome.

        Args:
            document: What `DocumentKind.decode` returned.
            at: The time that it gives, or that of its arrival if that lies in the future.
            source: Where it came from, as in the label `source` of counters.
        """
        raise NotImplementedError(f"the part {self.name} reads no documents")

    def resample(self, settings: SamplingSettings) -> None:
        """Follow other rates and strata from the next trace on."""

    def retain(self, services: Collection[str]) -> None:
        """Forget every other service: they have left every window."""

    def kept_traces(self) -> Set[TraceName]:
        """Return the traces whose texts are to be kept."""
        return frozenset()

    def take_kept(self) -> Set[TraceName]:
        """Return those of them that are new since the last call."""
        return frozenset()

    def samples(self) -> Iterable[GaugeSample]:
        """Return the gauges."""
        return ()

    @property
    def touched(self) -> bool:
        """Whether its own handlers have changed the state since the last `changes`."""
        return False

    def changes(self) -> Mapping[str, StateT | None]:
        """Return the rows of the state that changed since the last call, None for deleted ones."""
        return {}

    @classmethod
    def reads(cls, row: str) -> bool:
        """Return whether a saved row of this name is in the format that the part reads.

        The part begins anew without the others.
        """
        return True

    def restore(self, rows: Mapping[str, StateT]) -> None:
        """Load every row that was returned and not deleted, into a new part."""

    @classmethod
    def routes(cls, settings: Settings, home: PartHome, pages: PartPages) -> Iterable[Any]:
        """Return the routes (`aiohttp.web.RouteDef`) that it adds to the metrics port."""
        return ()

    @classmethod
    def links(cls, settings: Settings) -> Sequence[ServiceLink]:
        """Return the pages among its routes to which that of a service leads."""
        return ()

    @classmethod
    def page(cls, home: PageHome, service: str | None) -> Mapping[str, Any] | None:
        """Return what `page.html` shows of a service, or of all; None where there is nothing.

        It is called without the lock of `home`, which it holds no longer than it must.

        Args:
            home: The agent or worker.
            service: The service of the page, None on the page of all services.
        """
        return None
