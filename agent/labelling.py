"""Feedback meets its trace: which labels belong to which trace, and what is counted of them.

Feedback is durable from the moment it is accepted to the commit that counts it, a trace is known
by its frame from the commit that counts it until the horizon ends; so a process that dies redoes
what was not committed, and nothing counts twice. Labels are merged free of order
(`agent.feedback.merge`), and what they amount to is taken out of the windows and put in anew when
it changes: late, repeated and corrected labels end in the same numbers.

Not safe to use from several threads but for `unread`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from agent.aggregate import Aggregator
from agent.config import Settings
from agent.counters import Gauge
from agent.feedback.frames import Counted, Frame, Said, Word, by_rank, keys_of, trace_key
from agent.feedback.labels import RESERVED
from agent.fingerprints import split_scorer
from agent.metrics.labelled.scores import label_scores, metric_names
from agent.metrics.names import base
from agent.metrics.ranking import rank_order
from agent.store.feedback import FeedbackRows, FeedbackStep, Kept, NewFrame, Row
from agent.trace import Score, ScoredTrace, State, Trace
from agent.windows.periods import seconds_of
from agent.windows.stratified import is_assisted

__all__ = ["OUTCOMES", "Labelling"]

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

LOOK = 60.0
"""Seconds of event time between two looks at what has waited too long."""


class Labelling:
    """Joins what is in `rows` to the traces that were counted."""

    def __init__(self, settings: Settings, rows: FeedbackRows) -> None:
        self._rows = rows
        self._most_frames = settings.feedback.traces
        self._most_waiting = settings.feedback.waiting
        self._most_scorers = settings.feedback.scorers
        self._ks = sorted(set(settings.judge.k))
        longest = max(map(seconds_of, settings.windows))
        wanted = settings.feedback.horizon
        self.horizon = float(min(longest, seconds_of(wanted)) if wanted else longest)
        self._frames = 0
        self._forget_all()

    def restore(self) -> None:
        """Begin with what the store holds: all feedback in it is looked at anew."""
        self._forget_all()
        self._frames = self._rows.number_of_frames()

    def _forget_all(self) -> None:
        self._after = self._taken = 0
        self._waiting: dict[int, tuple[bytes, float]] = {}  # by id: its trace, since when
        self._of: dict[bytes, set[int]] = {}  # the waiting ids by their trace
        self._came: set[int] = set()  # those whose trace has come
        self._looked = self._checked = float("-inf")
        self._scorers: set[str] = set()

    def unread(self) -> int:
        """How much feedback nobody has looked at."""
        return self._rows.number(self._after)

    def looked_up_to(self, number: int) -> bool:
        """Whether the feedback of this id, and all before it, was looked at."""
        return not self._rows.number(self._after, number)

    def gauges(self) -> list[Gauge]:
        return [
            ("ragmeter_feedback_waiting", (), float(self._rows.number())),
            ("ragmeter_feedback_traces", (), float(self._frames)),
        ]

    # Traces ---------------------------------------------------------------------------------------

    def remember(
        self,
        done: Iterable[tuple[Trace, ScoredTrace, tuple[str, ...]]],
        aggregator: Aggregator,
    ) -> FeedbackStep:
        """What to remember of traces that were counted just now, each with its segments. Canaries
        are labelled by their reference; what came too late for every window has nothing to join."""
        frames: list[NewFrame] = []
        for trace, scored, segments in done if self._most_frames else ():
            if scored.canary or aggregator.windows.too_late(scored.timestamp):
                continue
            ids: list[str] | None = None
            if trace.passages is not None:
                ids = [trace.passages[index].id for index in rank_order(trace.passages)]
            frame = Frame(
                *(trace.trace_id, scored.service, segments, scored.timestamp, scored.probability),
                keys_of(ids),
            )
            key = trace_key(trace.trace_id)
            frames.append(NewFrame(key, trace.service, scored.timestamp, frame.dump()))
            self._came |= self._of.get(key, set())
        step = FeedbackStep(frames)
        now = aggregator.windows.now
        if now is not None and now - self._looked >= LOOK:
            self._looked = now
            step.before = now - self.horizon
            self._frames -= self._rows.number_of_frames(step.before)
        self._frames += len(frames)
        step.shed = max(0, self._frames - self._most_frames)
        if step.shed:
            self._frames -= step.shed
            aggregator.counters.inc("ragmeter_feedback_traces_shed_total", by=step.shed)
        return step

    # Labels ---------------------------------------------------------------------------------------

    def take(self, limit: int, now: float | None) -> list[Row]:
        """Feedback to be joined now: whose trace has come, whose time is up, and what is new."""
        rows: list[Row] = []
        for number in sorted(self._came)[:limit]:
            self._came.discard(number)
            self._forget(number)
            row = self._rows.row(number)
            if row is not None:
                rows.append(row)
        for number in self._overdue(now)[: limit - len(rows)]:
            row = self._rows.row(number)
            if row is not None:
                rows.append(row)
        new = self._rows.rows(self._after, limit - len(rows)) if len(rows) < limit else []
        self._taken = new[-1].id if new else 0
        known = {row.id for row in rows}  # after a failure all that waits is new again
        return [*rows, *(row for row in new if row.id not in known)]

    def looked(self) -> None:
        """What `take` has given was joined, and that is durable."""
        self._after = max(self._after, self._taken)

    def _overdue(self, now: float | None) -> list[int]:
        over = max(0, len(self._waiting) - self._most_waiting)
        late: list[int] = []
        if now is not None and now - self._checked >= LOOK:
            past = now - self.horizon
            late = [number for number, (_, since) in self._waiting.items() if since < past]
            self._checked = now if not late else self._checked
        oldest = sorted(self._waiting)[:over] if over else []
        return sorted({*late, *oldest})

    def join(self, rows: Sequence[Row], aggregator: Aggregator) -> FeedbackStep:
        """Count what the labels say. Hold the lock of `aggregator`."""
        found: dict[int, Frame] = {}
        changed: dict[int, None] = {}
        done: list[int] = []
        now = aggregator.windows.now
        for row in rows:
            outcome = self._join(row, aggregator, found, changed, now)
            if outcome is None:
                self._waiting[row.id] = (row.new.trace, row.new.since)
                self._of.setdefault(row.new.trace, set()).add(row.id)
                continue
            self._forget(row.id)
            done.append(row.id)
            self._count(aggregator, outcome)
        return FeedbackStep(
            labelled=[(number, found[number].dump()) for number in changed], done=done
        )

    def give_up(self, row: Row, aggregator: Aggregator) -> FeedbackStep:
        """What cannot be counted for a mistake of ours must not be tried for ever."""
        log.error("feedback %d cannot be counted", row.id)
        self._forget(row.id)
        self._count(aggregator, "internal_error")
        return FeedbackStep(done=[row.id])

    @staticmethod
    def _count(aggregator: Aggregator, outcome: str) -> None:
        aggregator.counters.inc("ragmeter_feedback_total", (("outcome", outcome),))

    def _forget(self, number: int) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            rest = self._of.get(waiting[0], set())
            rest.discard(number)
            if not rest:
                self._of.pop(waiting[0], None)

    def _join(
        self,
        row: Row,
        aggregator: Aggregator,
        found: dict[int, Frame],
        changed: dict[int, None],
        now: float | None,
    ) -> str | None:
        """The outcome; None: it goes on waiting for its trace."""
        kept = self._rows.frames(row.new.trace, row.new.service)
        if not kept:
            if now is not None and row.new.since < now - self.horizon:
                return "unmatched"
            # it is the oldest of too many: `take` has given it for this
            waited = row.id in self._waiting
            return "shed" if waited and len(self._waiting) > self._most_waiting else None
        if len(kept) > 1:
            return "ambiguous"
        one: Kept = kept[0]
        frame = found.get(one.id)
        if frame is None:
            frame = found[one.id] = Frame.load(one.body)
        if aggregator.windows.too_late(frame.timestamp):
            return "late"
        word = frame.about(Word.load(row.new.body))
        if not word.known:
            return "no_such_passage"
        scorer = row.new.scorer
        if not self._admit(scorer, aggregator):
            return "too_many_scorers"
        before = frame.said.get(scorer, Said())
        said = before.heard(word)
        if said.known == before.known and said.probability == before.probability:
            return "repeated"
        frame.said[scorer] = self._counted(frame, scorer, before, said, aggregator)
        changed[one.id] = None
        return "joined"

    def _counted(
        self, frame: Frame, scorer: str, before: Said, said: Said, aggregator: Aggregator
    ) -> Said:
        """Amend the windows by what has changed."""
        labels = said.labels()
        scores = label_scores(by_rank(frame, labels), labels.answer, self._ks)
        said.counted = tuple(scores.items())
        said.weighed = frame.probability * (said.probability[1] if said.probability else 1.0)
        old, new = set(before.counted), set(said.counted)
        if before.weighed == said.weighed:
            old, new = old - new, new - old
        aggregator.amend(
            _results(frame, scorer, [one for one in before.counted if one in old], before.weighed),
            _results(frame, scorer, [one for one in said.counted if one in new], said.weighed),
            frame.segments,
        )
        return said

    def _admit(self, scorer: str, aggregator: Aggregator) -> bool:
        """Whether there is room for series of this scorer: names come from outside."""
        if scorer in self._scorers:
            return True
        windows, labelled = aggregator.windows, set(map(base, metric_names(self._ks)))
        alive = {
            split_scorer(name)[0]
            for service in windows.services()
            for metric, name in windows.series(service)
            if base(metric) in labelled and not is_assisted(name)
        }
        self._scorers = alive - RESERVED
        if scorer not in self._scorers and len(self._scorers) >= self._most_scorers:
            return False
        self._scorers.add(scorer)
        return True


def _results(
    frame: Frame, scorer: str, counted: Sequence[Counted], probability: float
) -> ScoredTrace:
    scores = [
        Score(
            metric,
            scorer,
            State.NOT_APPLICABLE if value is None else State.SCORED,
            value,
            probability=probability,
        )
        for metric, value in counted
    ]
    return ScoredTrace(
        *(frame.trace_id, frame.service, frame.timestamp, "ok", scores, frame.probability),
        partial=True,
    )
