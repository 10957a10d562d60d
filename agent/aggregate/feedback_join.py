"""Join feedback to the traces that were counted, and count its labels.

Feedback meets its trace: which labels belong to which trace, and what is counted of them.

Feedback is durable from the moment it is accepted to the commit that counts it, a trace is known
by its frame from the commit that counts it until the horizon ends; so a process that dies redoes
what was not committed, and nothing counts twice. Labels are merged free of order
(`ragmeter.aggregate.feedback_records`), and what they amount to is taken out of the windows and put in anew when
it changes: late, repeated and corrected labels end in the same numbers.

Where both are kept is the matter of a `LabelStore`: tables of the state file, or rows of a
partition of the state on Kafka. Not safe to use from several threads but for `unread`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.aggregate.feedback_records import (
    FeedbackLabels,
    FeedbackTrace,
    ScorerFeedback,
    hash_passage_ids,
    labels_by_rank,
    trace_key,
)
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import parse_window
from ragmeter.core.counters import GaugeSample
from ragmeter.core.feedback import RESERVED_SCORERS
from ragmeter.core.metric_specs import base_name
from ragmeter.core.score import ScoredTrace
from ragmeter.core.series import split_scorer
from ragmeter.metrics.labelled import label_results, label_scores, labelled_metric_names
from ragmeter.metrics.ranking import rank_order
from ragmeter.store.pending import (
    FeedbackChanges,
    FeedbackStore,
    NewRememberedTrace,
    StoredFeedback,
)
from ragmeter.trace import Trace
from ragmeter.windows.intervals import is_assisted
from ragmeter.windows.windows import Windows


class WaitingFeedback:
    """By the id of the feedback; what it says is kept elsewhere. Pure."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[bytes, float]] = {}  # its trace, since when
        self._of: dict[bytes, set[int]] = {}  # the ids by their trace
        self._came: set[int] = set()

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, number: int) -> bool:
        return number in self._since

    def add(self, number: int, trace: bytes, since: float) -> None:
        self._since[number] = (trace, since)
        self._of.setdefault(trace, set()).add(number)

    def forget(self, number: int) -> None:
        self._came.discard(number)
        waiting = self._since.pop(number, None)
        if waiting is not None:
            rest = self._of.get(waiting[0], set())
            rest.discard(number)
            if not rest:
                self._of.pop(waiting[0], None)

    def arrived(self, trace: bytes) -> None:
        """The trace has come: what waits for it is in `ready`."""
        self._came |= self._of.get(trace, set())

    def ready(self, limit: int) -> list[int]:
        """The oldest whose trace has come."""
        return sorted(self._came)[:limit]

    def waiting_for(self, trace: bytes) -> list[int]:
        """What waits for this trace, oldest first."""
        return sorted(self._of.get(trace, ()))

    def waiting_since_before(self, past: float) -> list[int]:
        """What waits since a time before `past`."""
        return [number for number, (_, since) in self._since.items() if since < past]

    def oldest(self, count: int) -> list[int]:
        return sorted(self._since)[:count]


class CountedTrace(NamedTuple):
    """Its service as it was sent, the hashes of its passages in rank order (None: not captured),
    and under which names it is in the windows."""

    service: str
    passages: tuple[str, ...] | None
    scored: ScoredTrace
    segments: tuple[str, ...]


def ranked_passage_keys(trace: Trace) -> tuple[str, ...] | None:
    """For `Placed.passages`."""
    if trace.passages is None:
        return None
    return hash_passage_ids([trace.passages[index].id for index in rank_order(trace.passages)])


class _ScorerAdmission:
    """`most` names have a place at a time, each until every window has forgotten it."""

    def __init__(self, most: int, ks: Sequence[int]) -> None:
        self._most = most
        self._labelled = set(map(base_name, labelled_metric_names(ks)))
        self._known: set[str] = set()

    def admit(self, scorer: str, windows: Windows) -> bool:
        """Whether there is room for series of this scorer."""
        if scorer in self._known:
            return True
        alive = {
            split_scorer(name)[0]
            for service in windows.services()
            for metric, name in windows.series(service)
            if base_name(metric) in self._labelled and not is_assisted(name)
        }
        self._known = alive - RESERVED_SCORERS
        if scorer not in self._known and len(self._known) >= self._most:
            return False
        self._known.add(scorer)
        return True


log = logging.getLogger("ragmeter")

OUTCOMES = {
    "joined": "its labels are counted",
    "repeated": "they were counted before, word for word or by a later word",
    "unmatched": "no trace of this id came within the horizon",
    "late": "its trace has left the longest window",
    "ambiguous": "several services have a trace of this id, and it names none",
    "no_such_passage": "it labels passages only, and none of its trace's",
    "too_many_scorers": "there is no room for one scorer more (feedback.scorers)",
    "shed": "too much feedback was waiting (feedback.waiting)",
    "internal_error": "counting it failed",
}
"""What becomes of feedback, each in exactly one way."""

_LOOK = 60.0
"""Seconds of event time between two looks at what has waited too long. At full minutes: what is
found there hangs on event time alone, and not on when a process was started."""


class FeedbackJoin:
    """Joins what is in `rows` to the traces that were counted. `share`: of the room that the
    settings give, for one of several that share the traces."""

    def __init__(self, settings: Settings, rows: FeedbackStore, share: int = 1) -> None:
        self._rows = rows
        self._most_frames = -(-settings.feedback.traces // share)
        self._most_waiting = -(-settings.feedback.waiting // share)
        self._most_scorers = settings.feedback.scorers
        self._ks = sorted(set(settings.judge.k))
        longest = max(map(parse_window, settings.windows))
        wanted = settings.feedback.horizon
        self.horizon = float(min(longest, parse_window(wanted)) if wanted else longest)
        self._frames = 0
        self._forget_all()

    def restore(self) -> None:
        """Begin with what the store holds: all feedback in it is looked at anew."""
        self._forget_all()
        self._frames = self._rows.count_remembered()

    def _forget_all(self) -> None:
        self._after = self._taken = 0
        self._waiting = WaitingFeedback()
        self._looked = self._checked = float("-inf")
        self._scorers = _ScorerAdmission(self._most_scorers, self._ks)

    def _past(self, now: float) -> float:
        """What is older at event time `now` is beyond the horizon."""
        return now // _LOOK * _LOOK - self.horizon

    def unread(self) -> int:
        """How much feedback nobody has looked at."""
        return self._rows.count_feedback(self._after)

    def has_read_up_to(self, number: int) -> bool:
        """Whether the feedback of this id, and all before it, was looked at."""
        return not self._rows.count_feedback(self._after, number)

    def gauges(self) -> list[GaugeSample]:
        return [
            ("ragmeter_feedback_waiting", (), float(self._rows.count_feedback())),
            ("ragmeter_feedback_traces", (), float(self._frames)),
        ]

    # Traces ---------------------------------------------------------------------------------------

    def remember(self, done: Iterable[CountedTrace], aggregator: Aggregator) -> FeedbackChanges:
        """What to remember of traces that were counted just now. Canaries are labelled by their
        reference; what came too late for every window has nothing to join."""
        now = aggregator.windows.now
        past = float("-inf") if now is None else self._past(now)
        frames: list[NewRememberedTrace] = []
        for one in done if self._most_frames else ():
            scored = one.scored
            at = scored.timestamp
            if scored.canary or at < past or aggregator.windows.too_late(at):
                continue
            frame = FeedbackTrace(
                *(scored.trace_id, scored.service, one.segments, at, scored.probability),
                one.passages,
            )
            key = trace_key(scored.trace_id)
            frames.append(NewRememberedTrace(key, one.service, at, frame.dump()))
            self._waiting.arrived(key)
        step = FeedbackChanges(frames)
        if past > self._looked:
            self._looked = step.before = past
            self._frames -= self._rows.count_remembered(past)
        self._frames += len(frames)
        step.shed = max(0, self._frames - self._most_frames)
        if step.shed:
            self._frames -= step.shed
            aggregator.counters.inc("ragmeter_feedback_traces_shed_total", by=step.shed)
        return step

    # Labels ---------------------------------------------------------------------------------------

    def take(self, limit: int, now: float | None) -> list[StoredFeedback]:
        """Feedback to be joined now: whose trace has come, whose time is up, and what is new."""
        due = self._waiting.ready(limit)
        for number in due:
            self._waiting.forget(number)
        due += [one for one in self._overdue(now) if one not in due][: limit - len(due)]
        rows = [row for row in map(self._rows.row, due) if row is not None]
        new = self._rows.rows(self._after, limit - len(rows)) if len(rows) < limit else []
        self._taken = new[-1].id if new else 0
        known = {row.id for row in rows}  # after a failure all that waits is new again
        return [*rows, *(row for row in new if row.id not in known)]

    def mark_read(self) -> None:
        """What `take` has given was joined, and that is durable."""
        self._after = max(self._after, self._taken)

    def _overdue(self, now: float | None) -> list[int]:
        over = max(0, len(self._waiting) - self._most_waiting)
        late: list[int] = []
        if now is not None and (past := self._past(now)) > self._checked:
            late = self._waiting.waiting_since_before(past)
            self._checked = past if not late else self._checked
        return sorted({*late, *(self._waiting.oldest(over) if over else ())})

    def join(self, rows: Sequence[StoredFeedback], aggregator: Aggregator) -> FeedbackChanges:
        """Count what the labels say. Hold the lock of `aggregator`."""
        found: dict[int, FeedbackTrace] = {}
        changed: dict[int, None] = {}
        done: list[int] = []
        for row in rows:
            outcome = self._join(row, aggregator, found, changed)
            if outcome is None:
                self._waiting.add(row.id, row.new.trace, row.new.since)
                continue
            self._waiting.forget(row.id)
            done.append(row.id)
            self._count(aggregator, outcome)
        return FeedbackChanges(
            labelled=[(number, found[number].dump()) for number in changed], done=done
        )

    def give_up(self, row: StoredFeedback, aggregator: Aggregator) -> FeedbackChanges:
        """What cannot be counted for a mistake of ours must not be tried for ever."""
        log.error("feedback %d cannot be counted", row.id)
        self._waiting.forget(row.id)
        self._count(aggregator, "internal_error")
        return FeedbackChanges(done=[row.id])

    def waiting_for(self, trace: bytes) -> list[StoredFeedback]:
        """The feedback that waits for this trace."""
        found = map(self._rows.row, self._waiting.waiting_for(trace))
        return [row for row in found if row is not None]

    @staticmethod
    def _count(aggregator: Aggregator, outcome: str) -> None:
        aggregator.counters.inc("ragmeter_feedback_total", (("outcome", outcome),))

    def _join(
        self,
        row: StoredFeedback,
        aggregator: Aggregator,
        found: dict[int, FeedbackTrace],
        changed: dict[int, None],
    ) -> str | None:
        """The outcome; None: it goes on waiting for its trace."""
        kept = self._rows.remembered_traces(row.new.trace, row.new.service)
        if not kept:
            now = aggregator.windows.now
            if now is not None and row.new.since < self._past(now):
                return "unmatched"
            # it is the oldest of too many: `take` has given it for this
            waited = row.id in self._waiting
            return "shed" if waited and len(self._waiting) > self._most_waiting else None
        if len(kept) > 1:
            return "ambiguous"
        (one,) = kept
        frame = found.get(one.id)
        if frame is None:
            frame = found[one.id] = FeedbackTrace.load(one.body)
        if aggregator.windows.too_late(frame.timestamp):
            return "late"
        word = frame.restrict(FeedbackLabels.load(row.new.body))
        if not word.label_values:
            return "no_such_passage"
        scorer = row.new.scorer
        if not self._scorers.admit(scorer, aggregator.windows):
            return "too_many_scorers"
        before = frame.by_scorer.get(scorer, ScorerFeedback())
        said = before.add(word)
        if said.label_values == before.label_values and said.probability == before.probability:
            return "repeated"
        frame.by_scorer[scorer] = self._counted(frame, scorer, before, said, aggregator)
        changed[one.id] = None
        return "joined"

    def _counted(
        self,
        frame: FeedbackTrace,
        scorer: str,
        before: ScorerFeedback,
        said: ScorerFeedback,
        aggregator: Aggregator,
    ) -> ScorerFeedback:
        """Amend the windows by what has changed."""
        labels = said.labels()
        scores = label_scores(labels_by_rank(frame, labels), labels.answer, self._ks)
        said.counted = tuple(scores.items())
        said.weighed = frame.probability * (said.probability[1] if said.probability else 1.0)
        old, new = set(before.counted), set(said.counted)
        if before.weighed == said.weighed:
            old, new = old - new, new - old

        def part(counted: ScorerFeedback, some: set[tuple[str, float | None]]) -> ScoredTrace:
            values = [one for one in counted.counted if one in some]
            return ScoredTrace(
                *(frame.trace_id, frame.service, frame.timestamp, "ok"),
                label_results(values, scorer, counted.weighed),
                frame.probability,
                partial=True,
            )

        aggregator.amend(part(before, old), part(said, new), frame.segments)
        return said
