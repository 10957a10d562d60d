"""The parts of one state of services, as one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, create_model

from ragmeter.alerts.alert import Alert
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import GaugeSample
from ragmeter.core.files import load_yaml
from ragmeter.core.score import ScoredTrace
from ragmeter.parts.contract import (
    Arrival,
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
)
from ragmeter.parts.views import Announcer

_V = TypeVar("_V")

PartKinds = Sequence[type[Part[Any]]]
"""The parts that an agent has."""


def find_kind(kinds: PartKinds, view: type[_V]) -> type[_V]:
    """Return the part that offers a view by methods of its class, or what holds without one."""
    return next((kind for kind in kinds if issubclass(kind, view)), view)


class PartPage(NamedTuple):
    """The fragment of a part on a page: its package, and what its template shows."""

    package: str
    context: Mapping[str, Any]


@cache
def _adapter(kind: type[Part[Any]]) -> TypeAdapter[Any]:
    return TypeAdapter(kind.state)


class Parts:
    """The parts of one state of services, in the order in which they are listed."""

    def __init__(self, kinds: PartKinds, context: PartContext) -> None:
        context = replace(context, find=self.find)
        self._parts = {kind.name: kind.build(context) for kind in kinds}

    def __getitem__(self, name: str) -> Part[Any]:
        return self._parts[name]

    def find(self, view: type[_V]) -> _V:
        """Return the part that offers a view, or what holds without one: `ragmeter.parts.views`."""
        offered = (part for part in self._parts.values() if isinstance(part, view))
        return next(offered, None) or view()

    def learn(self, arrivals: Sequence[Arrival], turn: int) -> None:
        """Have every part learn from the traffic of a turn.

        An exception has a note as that of `observe`.
        """
        for part in self._parts.values():
            with _noting(part, [arrival.trace for arrival in arrivals]):
                part.learn(arrivals, turn)

    def observe(self, run: ScoredBatch, now: float | None) -> None:
        """Have every part count a run of scored traces.

        An exception names the part and the run in a note: whoever settles the run has no trace at
        hand any more.
        """
        for part in self._parts.values():
            with _noting(part, run.traces):
                part.observe(run, now)

    def advance(self, now: float) -> list[Event]:
        """Move the event time of every part, and return what they tell."""
        return [event for part in self._parts.values() for event in part.advance(now)]

    def evaluate(self, now: float, changed: Mapping[str, Collection[str]]) -> list[Event]:
        """Have every part evaluate its rules over the windows, and return what moved."""
        return [event for part in self._parts.values() for event in part.evaluate(now, changed)]

    def hear(self, moved: Sequence[Event], at: float) -> list[Event]:
        """Have every part take in alerts that moved, and return what moved with them."""
        return [event for part in self._parts.values() for event in part.hear(moved, at)]

    def next_due(self) -> float:
        """Return the event time at which a part next needs `advance` though no trace comes."""
        return min((part.next_due() for part in self._parts.values()), default=math.inf)

    def alerts(self) -> list[Alert]:
        """Return copies of the alerts of every part, with what is told of them."""
        alerts = [alert for part in self._parts.values() for alert in part.alerts()]
        self.find(Announcer).complete(alerts)
        return alerts

    @property
    def refused_alerts(self) -> int:
        """How many alerts of their own parts had no room for."""
        return sum(part.refused_alerts for part in self._parts.values())

    def resample(self, settings: SamplingSettings) -> None:
        """Have every part follow other rates and strata."""
        for part in self._parts.values():
            part.resample(settings)

    def retain(self, services: Collection[str]) -> None:
        """Have every part forget every other service."""
        for part in self._parts.values():
            part.retain(services)

    def kept_traces(self) -> set[TraceName]:
        """Return the traces whose texts any part has kept."""
        return {name for part in self._parts.values() for name in part.kept_traces()}

    def take_kept(self) -> set[TraceName]:
        """Return those of them that are new since the last call."""
        return {name for part in self._parts.values() for name in part.take_kept()}

    def samples(self) -> Iterator[GaugeSample]:
        """Yield the gauges of every part."""
        for part in self._parts.values():
            yield from part.samples()

    @property
    def touched(self) -> bool:
        """Whether the handlers of any part have changed its state since the last `changes`."""
        return any(part.touched for part in self._parts.values())

    def changes(self) -> tuple[dict[str, Any], list[str]]:
        """Return the changed rows as JSON-able values by name, and the names of deleted rows."""
        changed: dict[str, Any] = {}
        deleted: list[str] = []
        for part in self._parts.values():
            for key, state in part.changes().items():
                name = f"{part.name}/{key}"
                if state is None:
                    deleted.append(name)
                else:
                    changed[name] = _adapter(type(part)).dump_python(state, mode="json")
        return changed, deleted

    def forget_changes(self) -> None:
        """Take all changes as saved, where nobody saves any."""
        for part in self._parts.values():
            part.changes()

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Load the rows of every part from all that was saved.

        Raises:
            ValueError: A row makes no sense.
        """
        for part in self._parts.values():
            prefix = f"{part.name}/"
            part.restore(
                {
                    name.removeprefix(prefix): _adapter(type(part)).validate_python(row)
                    for name, row in saved.items()
                    if name.startswith(prefix) and part.reads(name.removeprefix(prefix))
                }
            )


@contextmanager
def _noting(part: Part[Any], traces: Sequence[ScoredTrace]) -> Iterator[None]:
    """Add to an exception which part could not count which traces."""
    try:
        yield
    except Exception as error:
        error.add_note(f"the part {part.name} could not count {_describe_run(traces)}")
        raise


def _describe_run(traces: Sequence[ScoredTrace]) -> str:
    if not traces:
        return "a run without traces"
    first = traces[0]
    return (
        f"{len(traces)} traces, of which the first is {first.trace_id[:80]!r}"
        f" of {first.service[:80]!r}"
    )


def compose_settings(name: str, kinds: PartKinds, module: str) -> type[Settings]:
    """Return the model of the whole configuration: the settings of the core and of the parts.

    It must be `name` in `module`, or its instances could not be pickled.
    """
    own: list[Any] = [kind.settings for kind in kinds if kind.settings is not None]
    return create_model(
        name,
        __base__=(*own, Settings),
        __doc__="The whole configuration.",
        __module__=module,
    )


def check_parts(kinds: PartKinds, settings: Settings) -> None:
    """Check what the types of the settings of parts cannot.

    Raises:
        ConfigError: A setting cannot work.
    """
    for kind in kinds:
        kind.check(settings)


@cache
def declared_families(kind: type[Part[Any]]) -> Mapping[str, str]:
    """Return the help of each metric family of a part, by its name and labels."""
    if not files(kind.package).joinpath("families.yaml").is_file():
        return {}
    declared: Mapping[str, str] = load_yaml(kind.package, "families.yaml")
    return declared


def document_kinds(kinds: PartKinds, settings: Settings) -> dict[str, DocumentKind]:
    """Return the kinds of documents that parts read, by the name of the part."""
    read = {kind.name: kind.accepts(settings) for kind in kinds}
    return {name: kind for name, kind in read.items() if kind is not None}


def file_documents(kinds: PartKinds, settings: Settings) -> str | None:
    """Return the name of the part whose documents files may have, None if there is none."""
    read = document_kinds(kinds, settings)
    return next((name for name, kind in read.items() if kind.read_file is not None), None)


def document_topics(kinds: PartKinds, settings: Settings) -> dict[str, str]:
    """Return the names of the parts that have topics of Kafka for their documents, by topic."""
    topics = settings.kafka.topics
    read = document_kinds(kinds, settings)
    return {getattr(topics, kind.topic): name for name, kind in read.items() if kind.topic}


def part_links(kinds: PartKinds, settings: Settings) -> list[ServiceLink]:
    """Return the pages of parts to which that of a service leads."""
    return [link for kind in kinds for link in kind.links(settings)]


def part_form_paths(kinds: PartKinds) -> list[str]:
    """Return the paths that forms on pages of parts post to."""
    return [path for kind in kinds for path in kind.form_paths]


def part_routes(
    kinds: PartKinds, settings: Settings, home: PartHome, pages: PartPages
) -> list[Any]:
    """Return the routes that parts add to the metrics port."""
    return [route for kind in kinds for route in kind.routes(settings, home, pages)]


def part_pages(kinds: PartKinds, home: PageHome, service: str | None = None) -> list[PartPage]:
    """Return the fragments that parts show of a service, or of all. They take the lock."""
    found = []
    for kind in kinds:
        context = kind.page(home, service)
        if context is not None:
            found.append(PartPage(kind.package, context))
    return found
