"""The life of incidents: they open, get worse, and are over when their number is back at its usual.

Pure: event time, the windows and the alerts that are held give the same messages however often the
process was restarted in between. A person gets one message when an incident opens, one when it gets
worse and one when it is over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ragmeter.alerts.alert import KEEP_RESOLVED, MAX_WORST, Alert, alert_id
from ragmeter.alerts.rule_sets import incident_runbook, runbook_link
from ragmeter.parts.incidents.cause import (
    IncidentFacts,
    billed_again,
    fault_share,
    find_change,
    find_segment,
    find_stage,
    read_tokens,
    refine_onset,
)
from ragmeter.parts.incidents.grouping import belongs, choose_lead, choose_onset
from ragmeter.parts.incidents.numbers import (
    DAY,
    FAILURES,
    NUMBERS,
    RECENT,
    DependenceWithin,
    NumberKey,
    NumberReader,
    NumberReading,
    least_shift,
    shift_of,
    slow_share,
    take_all_as_independent,
)
from ragmeter.parts.incidents.passage_sets import PassageSets
from ragmeter.parts.incidents.signals import (
    IncidentSignal,
    Onset,
    is_of_goal,
    read_signal,
    without_known_goals,
)
from ragmeter.parts.incidents.texts import question_lines, write_texts
from ragmeter.parts.views import (
    Incident,
    IncidentKind,
    IncidentSeverity,
    IncidentState,
    IncidentUnit,
)
from ragmeter.windows.windows import Windows

WARNING_WAIT = 300.0  # seconds in which a warning may prove to be a page, or nothing
WORSE = 1.5  # times as far from the usual as was told last
_SURELY_WORSE = 1.2  # times as far, by the end of the interval that is nearer to the usual
_SETTLE = 600.0  # seconds after a message in which the level is still being found out
_SILENT = 600.0  # seconds without a request, at least, until there is no traffic
_SILENT_GAPS = 20.0  # the same in gaps between two requests
_HOUR = 3_600.0
_CLOSE = DAY  # seconds after which what is not known to be over is closed
_LEVEL_SECONDS = 3_600.0  # the longest stretch that a level is about
_HARMED = 0.1  # share of all answers from which on an incident pages
_HARM_WORTH = 20.0  # effective samples that a share of harmed answers rests on
_SLOWER = 1.5  # times the usual p95
_SEARCH = 60.0  # seconds between two looks for the cause, at first
_NARROW = 0.3  # of the worst shift: how far the interval of a number that is back may reach
_SURELY_BACK = 0.5  # of the worst shift: what may be left when it is over
_COST = NumberKey("cost_usd", "builtin")
_WORKS = NumberKey("works", "builtin")
_GOAL_UNITS: Mapping[str, IncidentUnit] = {"fast": "seconds", "cost": "usd"}
_MAIN_FAILURE = 0.85  # of all failures, from which on they are called by its kind
_ASKED = 25  # worst traces whose questions are counted: the texts of as many are kept
_MAX_OPEN = 200  # incidents that stand at once
_SAME_SETS = 0.5  # share of one set of passages among the bad answers, from which it is the fault
_USUAL_SETS = 0.25  # its largest share before the fault

_HARMFUL: frozenset[IncidentKind] = frozenset(
    {
        "errors",
        "timeouts",
        "empty",
        "failures",
        "slow",
        "refusals",
        "ungrounded",
        "wrong_passages",
        "same_passages",
        "cut_off",
    }
)
"""Kinds that page by the share of answers that are hurt."""

_PAGING: frozenset[IncidentKind] = _HARMFUL | {
    "incomplete",
    "citations",
    "canaries",
    "no_traffic",
    "rule",
}
"""Kinds of which a critical signal pages: never the cost alone, nor our own measuring."""


@dataclass(slots=True)
class Frozen:
    """The usual of a number at the onset, and how far it surely went from there at most."""

    usual: float
    worst: float = 0.0


@dataclass(slots=True)
class Told:
    """What people were told last: of which number and segment, and how bad it was.

    `worse_since` is when it was first seen to be worse than that.
    """

    at: float
    severity: IncidentSeverity
    shift: float
    about: str
    worse_since: float | None = None


@dataclass(slots=True)
class IncidentRow:
    """A row of the state: an incident with what its life needs beside it.

    Args:
        incident: The incident.
        number: The number that it is about; None: only its signals have one.
        facts: What its texts say beside.
        frozen: By number and segment, the usual.
        told: The last message; None before the first.
        searched_at: When its cause was last looked for; None: it is to be looked for now.
        refined: Whether its onset was looked for in the windows.
        unknown_since: Since when it is not known whether it goes on.
        keys: The firings that belong to it.
    """

    incident: Incident
    number: NumberKey | None
    facts: IncidentFacts = field(default_factory=IncidentFacts)
    frozen: dict[str, Frozen] = field(default_factory=dict)
    told: Told | None = None
    searched_at: float | None = None
    refined: bool = False
    unknown_since: float | None = None
    keys: list[str] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.incident.ended_at is None

    @property
    def about(self) -> str:
        """The number and the segment."""
        return _frozen_name(self.number, self.incident.segment) if self.number else ""

    def signals(self) -> list[IncidentSignal]:
        """Return what it is made of."""
        return [read_signal(alert) for alert in self.incident.signals]


class IncidentBook:
    """The incidents of all services.

    Args:
        windows: The windows of all services.
        sets: The sets of passages of their requests.
        dependence: Tells how alike the requests of a service are.
    """

    def __init__(
        self,
        windows: Windows,
        sets: PassageSets,
        dependence: DependenceWithin = take_all_as_independent,
    ) -> None:
        self._windows = windows
        self._reader = NumberReader(windows, dependence)
        self._sets = sets
        self._rows: dict[str, IncidentRow] = {}

    def incidents(self, service: str | None = None) -> list[Incident]:
        """Return open incidents and those lately over; pages first, then the latest."""
        found = [
            row.incident
            for row in self._rows.values()
            if (service is None or row.incident.service == service)
            and (row.told is not None or row.open)
        ]
        return sorted(
            found,
            key=lambda one: (
                one.ended_at is not None,
                one.severity != "page",
                -one.opened_at,
                one.id,
            ),
        )

    def update(self, alerts: Iterable[Alert], now: float) -> list[Incident]:
        """Follow all alerts that are held at event time `now`; return the messages."""
        signals = {
            signal.key: signal
            for signal in (read_signal(alert) for alert in alerts if alert.fired_at is not None)
        }
        known = {key for row in self._rows.values() for key in row.keys}
        for row in self._rows.values():
            if row.open:
                _follow(row, signals, now)
        new = [
            signal
            for key, signal in signals.items()
            if key not in known and signal.alert.state == "firing"
        ]
        for signal in sorted(new, key=_news_rank):
            self._take(signal, now)
        firing = {key for key, signal in signals.items() if signal.alert.state == "firing"}
        messages = []
        for row in self._rows.values():
            if not row.open and firing & set(row.keys) and self._comes_back(row, now):
                _reopen(row, now)
                _follow(row, signals, now)
            if row.open and self._refresh(row, now):
                messages.append(row.incident)
        for name, row in list(self._rows.items()):
            ended = row.incident.ended_at
            # one whose slow signals still fire is kept: they must not open another, and it may come
            # back before they have ended
            if ended is not None and now - ended >= KEEP_RESOLVED and not firing & set(row.keys):
                del self._rows[name]
        return messages

    def next_due(self) -> float:
        """Return when time alone next moves an incident."""
        due = [math.inf]
        for row in self._rows.values():
            incident = row.incident
            if incident.ended_at is not None:
                due.append(incident.ended_at + KEEP_RESOLVED)
                continue
            if row.told is None and incident.severity == "warning":
                due.append(incident.opened_at + WARNING_WAIT)
            if row.told is not None and row.told.worse_since is not None:
                due.append(row.told.worse_since + WARNING_WAIT)
            if row.unknown_since is not None:
                due.append(row.unknown_since + _CLOSE)
            else:
                newest = self._windows.newest_trace(incident.service)
                if newest is not None:
                    due.append(newest + self._silence(incident.service, newest))
        return min(due)

    def rows(self) -> Mapping[str, IncidentRow]:
        """Return the state by the ids of incidents."""
        return self._rows

    def restore(self, rows: Mapping[str, IncidentRow]) -> None:
        """Continue from rows."""
        self._rows.update(rows)

    def retain(self, services: frozenset[str]) -> None:
        """Forget every other service."""
        for name, row in list(self._rows.items()):
            if row.incident.service not in services:
                del self._rows[name]

    def worst_traces(self, incident: Incident) -> list[str]:
        """Return the ids of the worst traces since the onset, as many as are kept."""
        row = self._rows.get(incident.id)
        number = row.number if row is not None else None
        if number is None:
            return list(incident.worst)
        metrics = FAILURES if number.metric == "works" else (number.metric,)
        window = self._windows.names[-1]
        found = [
            (trace.value, trace.trace_id)
            for metric in metrics
            for trace in self._windows.worst(
                service=incident.service,
                metric=metric,
                scorer=number.scorer,
                window=window,
                limit=_ASKED,
            )
            if trace.timestamp >= incident.since
        ]
        return [*dict.fromkeys([*(name for _, name in found), *incident.worst])][:_ASKED]

    def name_questions(self, incident: Incident, questions: Sequence[tuple[str, int]]) -> Incident:
        """Return an incident with its worst questions, and remember them."""
        told = replace(incident, worst_questions=tuple(questions))
        row = self._rows.get(incident.id)
        if row is None:
            return replace(told, detail=(*told.detail, *question_lines(questions)))
        row.incident = replace(row.incident, worst_questions=tuple(questions))
        self._write(row)
        return write_texts(told, row.facts, self._least(row))

    # Opening.

    def _take(self, signal: IncidentSignal, now: float) -> None:
        """Add a new signal to the incident of its cause, or open one."""
        service = signal.alert.service
        if signal.number is not None and signal.alert.drift is None:
            onset = refine_onset(
                reader=self._reader,
                service=service,
                number=signal.number,
                onset=signal.onset,
                now=now,
            )
            signal = signal._replace(onset=onset)
        rows = [
            row
            for row in self._rows.values()
            if row.open
            and row.incident.service == service
            and belongs(signal, row.signals(), _onset_of(row.incident))
        ]
        if rows:
            row = min(rows, key=lambda one: abs(one.incident.since - signal.onset.at))
            row.keys.append(signal.key)
            known = [one for one in row.incident.signals if one.id != signal.alert.id]
            row.incident = replace(row.incident, signals=(*known, signal.alert.copy()))
            row.searched_at = None
            return
        if not self._is_worse(signal, now) or len(self._rows) >= _MAX_OPEN:
            return
        alert = signal.alert
        name = alert_id("incident", service, f"{signal.kind} {alert.id} {now:.0f}")
        self._rows[name] = IncidentRow(
            Incident(
                id=name,
                service=service,
                question=signal.question,
                kind=signal.kind,
                severity="warning",
                state="open",
                since=signal.onset.at,
                since_lower=signal.onset.lower,
                since_upper=signal.onset.upper,
                opened_at=now,
                updated_at=now,
                segment=alert.segment,
                signals=(alert.copy(),),
            ),
            signal.number,
            keys=[signal.key],
        )

    def _is_worse(self, signal: IncidentSignal, now: float) -> bool:
        """Return whether a number went the bad way, as far as one can see."""
        alert = signal.alert
        if signal.number is None:
            return True
        spec = NUMBERS[signal.number.metric]
        if alert.drift is not None and alert.value is not None and alert.baseline is not None:
            usual = self._reader.usual(
                alert.service, alert.segment, signal.number, signal.onset.lower
            )
            level = self._reader.read(
                service=alert.service,
                segment=alert.segment,
                number=signal.number,
                start=signal.onset.at,
                end=now,
            )
            if usual is None or level is None:
                return shift_of(spec.better, alert.value, alert.baseline) > 0
            return shift_of(spec.better, level.value, usual.value) > 0
        return True

    # The life of one.

    def _comes_back(self, row: IncidentRow, now: float) -> bool:
        """Return whether the number is surely off again since it was over."""
        incident, number = row.incident, row.number
        frozen = row.frozen.get(row.about)
        if incident.state != "over" or incident.ended_at is None or number is None:
            return False
        if frozen is None or row.told is None:
            return False
        recent = self._reader.recent(
            incident.service, incident.segment, number, now=now, since=incident.ended_at
        )
        if recent is None:
            return False
        spec = NUMBERS[number.metric]
        surely = shift_of(spec.better, recent.good_end(spec.better), frozen.usual)
        return surely > least_shift(spec, frozen.usual)

    def _refresh(self, row: IncidentRow, now: float) -> bool:
        """Bring an incident up to date; return whether people are to be told of it."""
        signals = row.signals()
        ended = all(one.alert.state == "resolved" and not one.withdrawn for one in signals)
        if ended and row.told is None:  # what has passed before anybody was told is no news
            row.incident = replace(row.incident, ended_at=now, state="over", updated_at=now)
            return False
        self._describe(row, signals, now)
        self._search(row, now)
        if row.incident.question == "works":  # which failures they are is known by now
            self._describe(row, signals, now)
        self._measure(row, now)
        incident = row.incident
        state = self._state(row, signals, now)
        if state in ("no traffic", "not measured"):
            row.unknown_since = now if row.unknown_since is None else row.unknown_since
        else:
            row.unknown_since = None
        closed = row.unknown_since is not None and now - row.unknown_since >= _CLOSE
        withdrawn = all(one.withdrawn and "no data" not in one.alert.reason for one in signals)
        ends = state == "over" or closed or withdrawn
        if withdrawn and state != "over":
            state = "not measured"
        row.incident = replace(
            incident, state=state, updated_at=now, ended_at=now if ends else None
        )
        news = self._news(row, now)
        self._write(row)
        return news

    def _news(self, row: IncidentRow, now: float) -> bool:
        """Return whether an incident is to be told of, and note that it was."""
        incident = row.incident
        told = row.told
        if told is None:
            if not row.open:
                return False
            waited = now - incident.opened_at >= WARNING_WAIT
            if incident.state != "open" or (incident.severity == "warning" and not waited):
                return False
        elif row.open:
            if incident.state != "open" or not self._is_told_worse(row, told, now):
                return False
            row.incident = replace(incident, worsened_at=now)
        shift = self._shift(row) or 0.0
        recent = self._recent(row, now)
        if recent is not None and incident.usual is not None:
            shift = max(shift, shift_of(incident.better, recent.value, incident.usual))
        row.told = Told(now, incident.severity, shift, row.about)
        return True

    def _is_told_worse(self, row: IncidentRow, told: Told, now: float) -> bool:
        incident = row.incident
        if incident.severity == "page" and told.severity == "warning":
            return True
        shift = self._shift(row)
        if shift is None:
            return False
        if told.about != row.about or now - told.at < _SETTLE:
            # of another number, or of a few answers: what was told was about this one
            told.shift = max(told.shift, shift) if told.about == row.about else shift
            told.about = row.about
            return False
        recent = self._recent(row, now)
        if row.number is None or recent is None:
            return False
        frozen = row.frozen.get(row.about)
        if frozen is None:
            return False
        better = NUMBERS[row.number.metric].better
        usual = frozen.usual
        far = shift_of(better, recent.value, usual)
        surely = shift_of(better, recent.good_end(better), usual)
        if not (far >= WORSE * told.shift > 0 and surely >= _SURELY_WORSE * told.shift):
            told.worse_since = None
            return False
        if told.worse_since is None:
            told.worse_since = now
        # a warning waits as when it opens: it may prove to be a page
        return incident.severity == "page" or now - told.worse_since >= WARNING_WAIT

    def _shift(self, row: IncidentRow) -> float | None:
        incident = row.incident
        if incident.level is None or incident.usual is None:
            return None
        return shift_of(incident.better, incident.level, incident.usual)

    def _recent(self, row: IncidentRow, now: float) -> NumberReading | None:
        incident = row.incident
        if row.number is None:
            return None
        return self._reader.recent(
            incident.service, incident.segment, row.number, now=now, since=incident.since
        )

    def _describe(self, row: IncidentRow, signals: Sequence[IncidentSignal], now: float) -> None:
        """Say what is wrong and since when, by the signals."""
        incident = row.incident
        lead = choose_lead(signals)
        onset = choose_onset(signals)
        number = lead.number
        kind = lead.kind
        if lead.question == "works":
            kind, number = _main_failure(row.facts.failures, kind, number)
        if lead.question == "cost":  # tokens are what it is made of
            number = _COST if self._frozen(row, _COST, incident.segment) else number
        known = _onset_of(incident)
        if number is not None and all(one.alert.drift is None for one in signals):
            if not row.refined:
                row.refined = True
                onset = refine_onset(
                    reader=self._reader,
                    service=incident.service,
                    number=number,
                    onset=onset,
                    now=now,
                )
            else:
                onset = known
        elif row.refined and known.upper - known.lower <= onset.upper - onset.lower:
            onset = known
        onset = _at_change(onset, incident)
        if incident.kind == "same_passages" and kind in ("wrong_passages", "refusals"):
            kind = incident.kind
        if incident.kind == "retries" and kind == "cost":
            kind = incident.kind
        segment = incident.segment
        if lead.alert.segment:
            segment = lead.alert.segment
        elif number != row.number:
            segment = ""
        spec = NUMBERS.get(number.metric) if number is not None else None
        row.number = number
        worst = [name for one in (lead, *signals) for name in one.alert.worst]
        row.incident = replace(
            incident,
            kind=kind,
            question=lead.question,
            since=onset.at,
            since_lower=onset.lower,
            since_upper=onset.upper,
            unit=_unit(number, lead.alert),
            better=_better(lead.alert) if spec is None else spec.better,
            segment=segment,
            worst=tuple(dict.fromkeys([*incident.worst, *worst]))[: 2 * MAX_WORST],
            signals=tuple(sorted(incident.signals, key=lambda one: one.id != lead.alert.id)),
            runbook=runbook_of(kind, lead.alert),
        )
        if onset != known:
            row.searched_at = None

    def _search(self, row: IncidentRow, now: float) -> None:
        """Look for the cause, again whenever the time since the onset has grown by half."""
        incident = row.incident
        if row.searched_at is not None:
            pause = max(_SEARCH, (row.searched_at - incident.opened_at) / 2)
            if now - row.searched_at < pause or now - incident.opened_at > _LEVEL_SECONDS:
                return
        row.searched_at = now
        reader = self._reader
        service = incident.service
        onset = _onset_of(incident)
        facts = row.facts
        change = find_change(reader, service, onset, now)
        if change is not None:
            facts.before = change.before
            facts.change_share = change.share
            incident = replace(incident, change=change.change)
            onset = _at_change(onset, incident)
            incident = replace(incident, since=onset.at)
        day = reader.requests(service, "", onset.lower - DAY, onset.lower)
        begin = self._first(service, onset.lower)
        facts.daily = day * DAY / max(600.0, onset.lower - begin) if day else 0.0
        facts.hourly = reader.requests(service, "", now - _HOUR, now)
        if incident.signals[0].segment:  # a rule watches that segment
            facts.segment_share = reader.share(service, incident.segment, onset.at, now)
        elif row.number is not None:
            whole = change is not None and change.share > 0.9
            found = find_segment(
                reader,
                service=service,
                number=row.number,
                onset=onset,
                now=now,
                skip=change.change.tag if whole and change is not None else "",
            )
            if found is not None:
                name = _frozen_name(row.number, found.segment)
                row.frozen.setdefault(name, Frozen(found.usual.value))
                facts.segment_share = found.share
                facts.rest = found.rest
                incident = replace(incident, segment=found.segment)
        start = max(onset.at, now - _LEVEL_SECONDS)
        if incident.question == "works":
            failed = reader.read(
                service=service,
                segment=incident.segment,
                number=_WORKS,
                start=start,
                end=now,
            )
            facts.failures = {} if failed is None else dict(failed.failures)
        if incident.question == "cost":
            facts.tokens = read_tokens(
                reader=reader,
                service=service,
                segment=incident.segment,
                onset=onset,
                now=now,
            )
            if incident.kind == "cost" and billed_again(facts.tokens):
                incident = replace(incident, kind="retries")
        if incident.kind == "slow":
            stage = find_stage(
                reader,
                service=service,
                segment=incident.segment,
                stages=self._windows.stages(service),
                onset=onset,
                now=now,
            )
            if stage is not None:
                facts.stage, facts.stage_times = stage
        if incident.question in ("retrieved", "answered", "grounded"):
            facts.set_share = self._sets.largest_share(service, onset.at + 300, now)
            facts.set_usual = self._sets.largest_share(
                service, onset.lower - 6 * 3600, onset.lower - 300
            )
            same = facts.set_share >= _SAME_SETS and facts.set_usual <= _USUAL_SETS
            if same and incident.kind in ("wrong_passages", "refusals", "ungrounded"):
                incident = replace(incident, kind="same_passages")
        row.incident = incident

    def _first(self, service: str, before: float) -> float:
        """Return when the requests of the day before a time began, to the hour."""
        start = before - DAY
        while start < before and not self._reader.requests(service, "", start, start + 3600):
            start += 3600
        return start

    def _measure(self, row: IncidentRow, now: float) -> None:
        """Read the usual, the level and how many answers are hurt."""
        incident = row.incident
        lead = incident.signals[0]
        number = row.number
        usual, level = lead.baseline, lead.value
        lower, upper = lead.lower, lead.upper
        if number is not None:
            frozen = self._frozen(row, number, incident.segment)
            usual = None if frozen is None else frozen.usual
            start = max(incident.since, now - _LEVEL_SECONDS)
            reading = self._reader.read(
                service=incident.service,
                segment=incident.segment,
                number=number,
                start=start,
                end=now,
            )
            recent = self._recent(row, now)
            if recent is not None and reading is not None:
                # where a level has moved on, the last hour holds both
                ends = shift_of(incident.better, recent.good_end(incident.better), reading.value)
                reading = recent if ends > 0 else reading
            if reading is not None:
                level = reading.value
                lower = reading.lower
                upper = reading.upper
                row.facts.level_failures = dict(reading.failures)
            elif incident.level is not None:
                level = incident.level
                lower = incident.lower
                upper = incident.upper
            if reading is not None and frozen is not None:
                _note_shift(frozen, NUMBERS[number.metric].better, reading)
        harm = self._harm(row, usual, level, now)
        severity: IncidentSeverity = "warning"
        critical = any(
            one.severity == "critical" and one.state == "firing" for one in incident.signals
        )
        hurt = incident.kind in _HARMFUL and harm is not None and harm >= _HARMED
        if incident.severity == "page" or (critical and incident.kind in _PAGING) or hurt:
            severity = "page"
        row.incident = replace(
            incident,
            usual=usual,
            level=level,
            lower=lower,
            upper=upper,
            harm=harm,
            severity=severity,
        )

    def _harm(
        self, row: IncidentRow, usual: float | None, level: float | None, now: float
    ) -> float | None:
        """Estimate the share of all answers that are hurt beyond the usual."""
        incident, number = row.incident, row.number
        if number is None or usual is None or level is None or incident.kind not in _HARMFUL:
            return None
        start = max(incident.since, now - _LEVEL_SECONDS)
        if self._reader.requests(incident.service, "", start, now) < _HARM_WORTH:
            return incident.harm
        share = fault_share(incident, row.facts)
        if number.metric == "latency":
            histogram = self._reader.latencies(
                service=incident.service,
                segment="",
                stage=number.scorer,
                start=start,
                end=now,
            )
            whole = self._frozen(row, number, "")
            limit = usual if whole is None else whole.usual
            slow = slow_share(histogram, _SLOWER * limit)
            return None if slow is None else min(share, max(0.0, slow.value - 0.02))
        shift = max(0.0, shift_of(incident.better, level, usual)) * share
        if incident.unit == "share":
            return shift
        # The detector knows by how much an index is lower for an answer that is bad. That is so on
        # the average: answers that are worse than bad ones usually are would count twice.
        told = [one.harm for one in incident.signals if one.harm is not None]
        if told:
            return min(share, max(told))
        return min(share, shift / usual) if usual > 0 else None

    def _frozen(self, row: IncidentRow, number: NumberKey, segment: str) -> Frozen | None:
        """Return the usual of a number, read once and then kept."""
        name = _frozen_name(number, segment)
        if name not in row.frozen:
            incident = row.incident
            found = self._reader.usual(incident.service, segment, number, incident.since_lower)
            if found is None:
                return None
            row.frozen[name] = Frozen(found.value)
        return row.frozen[name]

    # Its end.

    def _state(
        self, row: IncidentRow, signals: Sequence[IncidentSignal], now: float
    ) -> IncidentState:
        incident = row.incident
        newest = self._windows.newest_trace(incident.service)
        silent = newest is None or now - newest >= self._silence(incident.service, newest)
        if incident.kind == "no_traffic":
            firing = any(one.alert.state == "firing" for one in signals)
            return "open" if firing or silent else "over"
        if silent:
            return "no traffic"
        # a level over a day misses its goal for long after the number is back at its usual
        verdicts = [self._is_back(row, signal, now) for signal in without_known_goals(signals)]
        if row.number is not None and incident.segment:
            verdicts.append(self._number_back(row, row.number, incident.segment, now))
        if all(verdicts):
            return "over"
        if any(verdict is False for verdict in verdicts):
            return "open"
        return "not measured"

    def _silence(self, service: str, newest: float) -> float:
        """Return after how many seconds without a request a service has no traffic."""
        seen = self._reader.requests(service, "", newest - 3600.0, newest)
        return max(_SILENT, _SILENT_GAPS * 3600.0 / max(1, seen))

    def _is_back(self, row: IncidentRow, signal: IncidentSignal, now: float) -> bool | None:
        """Return whether the number of a signal is back at its usual; None: it is not known."""
        alert = signal.alert
        own = None
        if signal.number is not None:
            own = self._number_back(row, signal.number, alert.segment, now)
            if own is False:
                return False
        if alert.state == "resolved" and not signal.withdrawn:
            return True
        if own is not None:
            return own
        if alert.state == "resolved" or alert.no_data:
            return None
        return False

    def _number_back(
        self, row: IncidentRow, number: NumberKey, segment: str, now: float
    ) -> bool | None:
        """Return whether a number is back; None where it never was far off, or is not known."""
        incident = row.incident
        frozen = self._frozen(row, number, segment)
        if frozen is None:
            return None
        spec = NUMBERS[number.metric]
        least = least_shift(spec, frozen.usual)
        since = self._reader.read(
            service=incident.service,
            segment=segment,
            number=number,
            start=max(incident.since, now - _LEVEL_SECONDS),
            end=now,
        )
        if since is not None:
            _note_shift(frozen, spec.better, since)
        if frozen.worst < least:
            return None
        # a small fault is not over because few requests happen to have none of it
        recent = self._reader.recent(
            incident.service,
            segment,
            number,
            now=now,
            since=incident.since,
            narrow=max(least, _NARROW * frozen.worst),
        )
        if recent is None:
            seen = self._reader.requests(incident.service, segment, now - RECENT[0], now)
            return None if not seen or since is None else False
        left = shift_of(spec.better, recent.value, frozen.usual)
        most = shift_of(spec.better, recent.bad_end(spec.better), frozen.usual)
        best = shift_of(spec.better, recent.good_end(spec.better), frozen.usual)
        within = best <= 0 or left <= least
        return within and most <= max(2 * least, _SURELY_BACK * frozen.worst)

    def _least(self, row: IncidentRow) -> float | None:
        """Return how far a number may be off when it is over, None where it is not known."""
        frozen = row.frozen.get(row.about)
        if row.number is None or frozen is None:
            return None
        spec = NUMBERS[row.number.metric]
        return least_shift(spec, frozen.usual)

    def _write(self, row: IncidentRow) -> None:
        """Write the texts anew."""
        incident = row.incident
        least = self._least(row)
        if incident.ended_at is not None and incident.state == "over" and row.number is not None:
            recent = self._recent(row, incident.ended_at)
            if recent is not None:
                incident = replace(
                    incident, level=recent.value, lower=recent.lower, upper=recent.upper
                )
        row.incident = write_texts(incident, row.facts, least)


def _reopen(row: IncidentRow, now: float) -> None:
    """Have an incident go on that was over: people are told of it again."""
    row.incident = replace(row.incident, state="open", ended_at=None, worsened_at=now)
    row.told = row.searched_at = None


def _follow(row: IncidentRow, signals: Mapping[str, IncidentSignal], now: float) -> None:
    """Take over what became of the signals of an incident."""
    alerts = []
    for alert in row.incident.signals:
        key = read_signal(alert).key
        if key in signals:
            alerts.append(signals[key].alert.copy())
            continue
        gone = alert.copy()
        if gone.state == "firing":
            gone.resolve("no longer held", now)
        alerts.append(gone)
    row.incident = replace(row.incident, signals=tuple(alerts))


def _main_failure(
    shares: Mapping[str, float], kind: IncidentKind, number: NumberKey | None
) -> tuple[IncidentKind, NumberKey | None]:
    """Return the kind and the number of most failures, or of all where several kinds share them."""
    total = sum(shares.values())
    if not total:
        return kind, number
    metric, most = max(shares.items(), key=lambda item: item[1])
    if most < _MAIN_FAILURE * total:
        metric = "works"
    return NUMBERS[metric].kind, NumberKey(metric, "builtin")


def _news_rank(signal: IncidentSignal) -> tuple[bool, float, str]:
    return signal.alert.severity != "critical", signal.onset.at, signal.key


def _onset_of(incident: Incident) -> Onset:
    return Onset(incident.since, incident.since_lower, incident.since_upper)


def _at_change(onset: Onset, incident: Incident) -> Onset:
    """Return an onset at the minute of the change, where that may be when it began."""
    change = incident.change
    if change is None or not onset.lower <= change.at <= onset.upper:
        return onset
    return onset._replace(at=change.at)


def _note_shift(frozen: Frozen, better: Literal["higher", "lower"], reading: NumberReading) -> None:
    """Note how far a number surely is from its usual: a few requests may show far more."""
    frozen.worst = max(frozen.worst, shift_of(better, reading.good_end(better), frozen.usual))


def _frozen_name(number: NumberKey, segment: str) -> str:
    return f"{number.metric} {number.scorer} {segment}"


def _unit(number: NumberKey | None, alert: Alert) -> IncidentUnit:
    if number is not None:
        return NUMBERS[number.metric].unit
    if is_of_goal(alert):
        return _GOAL_UNITS.get(alert.question, "share")
    return "share" if alert.unscored is not None else "count"


def _better(alert: Alert) -> Literal["higher", "lower"]:
    return "higher" if alert.op.startswith("<") and is_of_goal(alert) else "lower"


def runbook_of(kind: IncidentKind, alert: Alert) -> str:
    """Return the runbook of a kind of incident, where the leading alert has none of its own.

    What ragmeter itself has written for the rule of that alert is no page of its own: drift has one
    page, whatever users suffer.
    """
    page = runbook_link(alert.rule, "")
    if kind == "rule" or not alert.runbook.endswith(page):
        return alert.runbook
    return incident_runbook(kind, alert.runbook.removesuffix(page))
