"""What parts let others read, and do, beside what the contract says; a part may offer any of it.

`Parts.find` returns the part that offers a view, so that nobody needs its name. A view itself says
what holds where no part offers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from ragmeter.alerts.alert import Alert
from ragmeter.alerts.explanation import Explanation, WorseSeries
from ragmeter.config.settings import Settings
from ragmeter.core.errors import UsageError
from ragmeter.core.score import ScoredTrace
from ragmeter.sampling.control import SamplingControl
from ragmeter.windows.contrasts import CellPair, SeriesKind
from ragmeter.windows.windows import Windows

if TYPE_CHECKING:  # every command imports this module, and few need these, which load slowly
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import RenderableType


class ControlSource:
    """What the sampler should know of the traffic."""

    def control(self, turn: int) -> SamplingControl:
        """Return the record that holds in a turn, when all earlier turns have been observed."""
        return SamplingControl()

    @property
    def latest_control(self) -> SamplingControl:
        """The record of all traces so far."""
        return SamplingControl()


class Announcer:
    """What people are told of the signals of all parts, and when."""

    def complete(self, alerts: Iterable[Alert]) -> None:
        """Add to alerts a link to their runbook."""

    def announce(self, alerts: Sequence[Alert], now: float) -> Sequence[Incident]:
        """Return the incidents that people are to be told of at event time `now`."""
        return ()

    def worst_traces(self, incident: Incident) -> Sequence[str]:
        """Return the ids of the traces whose questions are an incident's worst ones."""
        return ()

    def name_questions(self, incident: Incident, questions: Sequence[tuple[str, int]]) -> Incident:
        """Return an incident with its worst questions and their counts, and remember them."""
        return incident


class BaselineKeeper:
    """What the questions of services usually are, and are compared with."""

    def baselines(self) -> list[dict[str, Any]]:
        """Return the usual of each question of each service."""
        return []

    def promote(
        self, service: str | None, at: float | None
    ) -> tuple[dict[str, Any], list[Alert]] | None:
        """Learn the usual of one service, or of all if None, from event time `at` on.

        Returns:
            What was done, by service, and the alerts that ended. None if the service is not
            watched.
        """
        return None


class Explainer:
    """Which segments moved a mean, in words."""

    def explain_worse(self, windows: Windows, series: WorseSeries) -> Explanation:
        """Explain what moved a series into trouble."""
        return Explanation()

    def explain_change(
        self,
        windows: Windows,
        service: str,
        read: Callable[[str], CellPair],
        kind: SeriesKind,
        direction: int,
    ) -> Explanation:
        """Explain why a mean of a service has changed.

        Args:
            windows: The windows, for the segments.
            service: The service.
            read: Returns the sums of a segment before the change and since.
            kind: The kind of the series.
            direction: 1 where the mean went up, -1 where it went down.
        """
        return Explanation()


@dataclass(frozen=True, slots=True)
class RequestSeries:
    """The sums of the requests of a service by bucket of time, the oldest first.

    Args:
        names: The series, by their place in `sums`.
        starts: Shape (buckets,): when each begins, in Unix seconds.
        sums: Shape (buckets, series, 5): requests, weight, weighted values and squares, and squared
            weights.
    """

    names: tuple[str, ...]
    starts: NDArray[np.float64]
    sums: NDArray[np.float64]


class RequestHistory:
    """What every request of the last two weeks has told of each question."""

    def request_sums(
        self, service: str, width: int, first: float, last: float
    ) -> RequestSeries | None:
        """Return the sums of requests in the buckets that begin in [first, last).

        Args:
            service: The service.
            width: Seconds of a bucket: 300, of the last seven hours, or 3600.
            first: Unix seconds.
            last: Unix seconds.

        Returns:
            None where there is no request.
        """
        return None

    def design_effects(
        self, service: str, width: int, first: float, last: float
    ) -> Mapping[str, float]:
        """Return by how much dependence enlarges the variance of the change of a mean, by series.

        As the clusters of the buckets tell that begin in [first, last), see `request_sums`. An
        hour knows its clusters for a day.
        """
        return {}

    def dependence(self, service: str, metric: str | None, window: str) -> float:
        """Return how many requests are worth one independent one, at least 1.

        Args:
            service: The service.
            metric: Of what is read of them. Of a metric that no question is about, the most of all
                shares; None: of the p95 of latency.
            window: The stretch of time up to now, as in `1h`.
        """
        return 1.0

    def dependence_within(
        self, service: str, metric: str | None, start: float, end: float
    ) -> float:
        """Return the same for the requests of [start, end), in Unix seconds."""
        return 1.0


class ComparedWith(StrEnum):
    """Compare a segment with its own past and the move of the rest, or with the rest as it is."""

    BEFORE = "before"
    REST = "rest"


class SegmentTables:
    """What the command that compares segments does with files, and how it shows what it found."""

    @classmethod
    def break_down_files(
        cls,
        files: Sequence[Windows],
        *,
        tags: Sequence[str],
        service: str | None,
        metric: str | None,
        against: ComparedWith | None,
        say: Callable[[str], None],
    ) -> dict[str, Any]:
        """Break down the last file against the first, or one file alone.

        Args:
            files: The windows of each file.
            tags: The tags that make segments.
            service: The service, None for all.
            metric: The metric, None for all that have a better side.
            against: What segments are compared with; None: the past if there is one.
            say: Says what is left out.

        Returns:
            A document with the breakdown of each service under `services`.

        Raises:
            UsageError: A comparison with the past was requested and there is no past, or no part
                compares segments.
        """
        raise UsageError("no part of this installation compares segments")

    @classmethod
    def show_breakdown(
        cls, breakdown: Mapping[str, Any], window: str | None, every: bool
    ) -> RenderableType:
        """Return how a terminal shows the breakdown of one service.

        Args:
            breakdown: One of the `services` of a document.
            window: The window of now; None: a file.
            every: Show every metric and segment, not only findings.
        """
        return str(breakdown["service"])


State = Literal["good", "moved", "bad", "not enough"]
"""What is known of a question: as usual or better, moved for the worse, its goal missed, or too
little is known to say."""


Source = Literal["requests", "estimate", "labels", "judge", "model", "builtin"]
"""What a number rests on. `requests`: what every request reports; `estimate`: costs by the tokens
that requests report and list prices.
"""


@dataclass(frozen=True, slots=True)
class Level:
    """How good the answers are by one question, with its 95 % interval.

    Args:
        value: In the unit of the question.
        lower: The lower end of the interval.
        upper: The upper end; None where the samples do not tell it.
        window: The length of time that it is about, as in `24h`; `file` for all of a file.
        samples: How many requests, verdicts or labels it rests on.
        worth: How many independent ones of equal weight carry as much information.
        source: What it rests on.
    """

    value: float
    lower: float
    upper: float | None
    window: str
    samples: int
    worth: float
    source: Source


@dataclass(frozen=True, slots=True)
class Movement:
    """How far the last hour is from the usual, with its 95 % interval.

    In points (hundredths) for shares and indexes, in the unit of the question for others.
    """

    change: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of one question of a service.

    Args:
        question: Its name.
        meaning: What the number counts.
        unit: `share`, `seconds` or `usd`.
        better: Which direction is better.
        level: The number; None: not enough is known.
        levels: The same by window, where there is enough in it.
        movement: How far the last hour is from the usual; None: not enough is known.
        usual: The number before.
        goal: What the user wants.
        state: See `State`.
        source: What the number rests on, in words.
        note: What to know of the number, or what is missing; may be empty.
        scores: (metric, scorer) of the scores that tell of single traces, the most trusted first;
            of latency the scorer is the stage.
    """

    question: str
    meaning: str
    unit: Literal["share", "seconds", "usd"]
    better: Literal["higher", "lower"]
    level: Level | None = None
    levels: Mapping[str, Level] = field(default_factory=dict)
    movement: Movement | None = None
    usual: float | None = None
    goal: float | None = None
    state: State = "not enough"
    source: str = ""
    note: str = ""
    scores: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A new value of a tag: a new model, prompt version or index version.

    Args:
        at: When it was first seen, in Unix seconds.
        tag: The tag.
        value: Its new value.
    """

    at: float
    tag: str
    value: str


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A question whose level rests on something else: it may move though the service did not.

    Args:
        at: Since when, in Unix seconds.
        question: The question.
        source: What the level rests on.
        before: What it rested on before.
    """

    at: float
    question: str
    source: Source
    before: Source


@dataclass(frozen=True, slots=True)
class SegmentAnswer:
    """The number of one question in a segment, over the last hour or day.

    Args:
        segment: `tag=value`.
        question: The question.
        level: The number in the segment; its `source` is that of the whole service or `requests`.
        moved: Whether it differs from the rest of the service beyond chance.
    """

    segment: str
    question: str
    level: Level
    moved: bool


class FileAnswers:
    """The questions of scored traces in a file; without a part that knows them there are none."""

    def add(self, scored: ScoredTrace, rest: ScoredTrace | None) -> None:
        """Count a trace.

        Args:
            scored: Its cheap results.
            rest: Its results of slow tiers and people, None without any.
        """

    def answers(self) -> Sequence[Answer]:
        """Return every question, in order; empty without any trace."""
        return ()


class QuestionAnswers:
    """The eight questions of each service. Hold the lock of the agent."""

    @classmethod
    def of_file(cls, settings: Settings) -> FileAnswers:
        """Return what answers the questions of a file, by the goals of the settings."""
        return FileAnswers()

    def answers(self, service: str) -> Sequence[Answer]:
        """Return every question of a service, in order; empty for an unknown service."""
        return ()

    def history(self, service: str, question: str, seconds: int) -> list[tuple[float, Level]]:
        """Return (start in Unix seconds, level) of the parts of a stretch of time that have one."""
        return []

    def segment_answers(self, service: str) -> Sequence[SegmentAnswer]:
        """Return the questions by segment."""
        return ()

    def tag_changes(self, service: str) -> Sequence[Change]:
        """Return the new values of tags, the latest first."""
        return ()

    def source_changes(self, service: str) -> Sequence[SourceChange]:
        """Return the questions whose level rests on something else now, the latest first."""
        return ()

    def before_and_after(
        self, service: str, at: float
    ) -> Sequence[tuple[Answer, Level | None, Level | None]]:
        """Return each question with its levels in the hours before and after a time."""
        return ()


IncidentKind = Literal[
    "errors",
    "timeouts",
    "empty",
    "failures",
    "slow",
    "refusals",
    "ungrounded",
    "wrong_passages",
    "same_passages",
    "citations",
    "incomplete",
    "cost",
    "retries",
    "cut_off",
    "no_traffic",
    "canaries",
    "measuring",
    "rule",
]
"""What is wrong for the user. `failures`: errors, timeouts and empty answers of several kinds at
once. `cut_off`: answers that a limit of tokens or a content filter ended. `rule`: what a
rule of the user says."""

IncidentSeverity = Literal["page", "warning"]

IncidentState = Literal["open", "no traffic", "not measured", "over"]
"""`no traffic` and `not measured`: what was told is not known to be over."""

IncidentUnit = Literal["share", "seconds", "usd", "points", "count"]


@dataclass(frozen=True, slots=True)
class Incident:
    """What a person is told of: one cause at one service. Times are event time in Unix seconds.

    Args:
        id: 16 hex digits, the same everywhere: page, terminal, Alertmanager, webhook, `/metrics`.
        service: The service.
        question: The question whose answer it changes; empty where it is about measuring or a rule
            that no question has.
        kind: What is wrong.
        severity: `page` where users are hurt.
        state: See `IncidentState`.
        since: The estimated onset, which lies between `since_lower` and `since_upper`.
        opened_at: When it was first told.
        worsened_at: When it was last told that it got worse; None if never.
        ended_at: When it was told to be over; None while it is not.
        updated_at: When it was last looked at.
        usual: The number before the onset, frozen there; None where it is not known.
        level: The number since the onset, with its 95 % interval `lower` to `upper`.
        unit: Of these numbers. Shares are of 1; `points` are hundredths, as a movement has them.
        better: Which direction is better.
        harm: The estimated share of all answers that are hurt beyond the usual.
        segment: `tag=value` of the requests that it is about; empty: all alike.
        change: The new value of a tag that came with the onset.
        worst: Ids of the worst traces, the worst first.
        worst_questions: The worst questions with how often each was asked, the worst first; cleaned
            and bounded, empty where texts are not kept.
        signals: Copies of the alerts that it is made of: the evidence.
        title: "service: what is wrong for the user".
        summary: One sentence of at most 140 characters: both levels, since when, where.
        detail: What else to know, a line each: change, questions, effect, when it ends.
        advice: What to do, in one sentence.
        runbook: A link; may be empty.
    """

    id: str
    service: str
    question: str
    kind: IncidentKind
    severity: IncidentSeverity
    state: IncidentState
    since: float
    since_lower: float
    since_upper: float
    opened_at: float
    updated_at: float
    worsened_at: float | None = None
    ended_at: float | None = None
    usual: float | None = None
    level: float | None = None
    lower: float | None = None
    upper: float | None = None
    unit: IncidentUnit = "share"
    better: Literal["higher", "lower"] = "lower"
    harm: float | None = None
    segment: str = ""
    change: Change | None = None
    worst: tuple[str, ...] = ()
    worst_questions: tuple[tuple[str, int], ...] = ()
    signals: tuple[Alert, ...] = ()
    title: str = ""
    summary: str = ""
    detail: tuple[str, ...] = ()
    advice: str = ""
    runbook: str = ""

    @property
    def over(self) -> bool:
        """Whether it is known to be over."""
        return self.state == "over"


class OpenIncidents:
    """What people are told of each service. Hold the lock of the agent."""

    def incidents(self, service: str | None = None) -> Sequence[Incident]:
        """Return the incidents of a service, or of all: open ones, and those lately over.

        Pages first, then the latest first; those that are over come last.
        """
        return ()
