"""Drift alarms, and the decision which alarms of judged metrics are raised and which are held.

A residual alarm while the cheap score has been quiet for a day is judge drift, and so are stored
probes that the judge judges otherwise; the judged score's own alarm is then a consequence and
held. A judged score that moves first waits for the cheap score (quality) or the residual (judge).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from ragmeter.core.score import BUILTIN_SCORER

AlarmKind = Literal["rate", "mean", "distribution", "latency", "judge"]

# `held`: the series has moved, but another alarm explains it (`cause` names it), or it waits for
# evidence that tells quality from judge.
_AlarmState = Literal["firing", "held", "cleared"]

AlarmKey = tuple[str, str, str, str]  # (service, metric, scorer, kind)

_JudgedKey = tuple[str, str, str]  # (service, metric, judge)

# Returns when the cheap score of a (service, metric) last alarmed, None if it is not watched.
_CheapAlarmTime = Callable[[str, str], float | None]

# Seconds without an alarm of the cheap score for its being quiet to mean something.
_QUIET_SECONDS = 86400.0

# Seconds that a judged score's alarm waits for the residual or the cheap score. The residual finds
# a moderate swap of the judge (10 to 16 % bad) in 160 minutes, a hard one in 70.
HOLD_SECONDS = 6 * 3600.0

CHEAP_MOVED = "the cheap score has moved, too"


@dataclass(frozen=True, slots=True)
class Alarm:
    """A change that a detector has found in one series.

    `metric` is the stage for latency. `before` and `after` are means; for a distribution or latency
    the share of values above `edge`, where it changed most; for judge drift the mean of judge minus
    calibrated cheap score. `after` with its interval is the level since the change, of the
    `effective_samples` since then. The time of the change was chosen after the fact, where the
    shift is largest, so it tends to overstate the shift a little. `at` is event time (Unix
    seconds), `since` the estimated time of the change with its 95 % set; with `since_at_least` the
    change is at least that old. `statistic` and `threshold` are the detector's; by chance some
    detector of the installation goes as far beyond its own at most once in `expected_days`.
    `provisional` names the reason why the baseline is not final, "" if it is.
    """

    service: str
    metric: str
    scorer: str
    kind: AlarmKind
    state: _AlarmState
    at: float
    since: float
    since_earliest: float
    since_latest: float
    before: float
    after: float
    after_lower: float
    after_upper: float
    statistic: float
    threshold: float
    effective_samples: float
    baseline_version: int
    baseline_hours: float
    provisional: str
    edge: float | None = None
    cause: str = ""
    since_at_least: bool = False
    expected_days: float = 0.0

    @property
    def key(self) -> AlarmKey:
        """The identity of the alarm, whatever its state: service, metric, scorer, kind."""
        return self.service, self.metric, self.scorer, self.kind

    def describe(self) -> str:
        """Describe the change in a clause, without its cause."""
        moved = f"went from {self.before:.3g} to {self.after:.3g}"
        if self.kind == "judge":
            return (
                f"{self.scorer} judges {self.metric} differently: its distance from the cheap score"
                f" {moved}"
            )
        if self.edge is not None:
            return f"the share of {self.metric} above {self.edge:.3g} {moved}"
        by = "" if self.scorer == BUILTIN_SCORER else f" by {self.scorer}"
        return f"{self.metric}{by} {moved}"


def with_state(alarm: Alarm, state: _AlarmState, cause: str = "", at: float | None = None) -> Alarm:
    """Return the alarm in another state, from `at` (Unix seconds) on if given."""
    return replace(alarm, state=state, cause=cause, at=alarm.at if at is None else at)


_ALARMS = TypeAdapter(list[Alarm])


def _alarms_of(saved: Any) -> dict[_JudgedKey, Alarm]:
    alarms = _ALARMS.validate_python(saved)
    return {(alarm.service, alarm.metric, alarm.scorer): alarm for alarm in alarms}


# JSON has no keys of several texts
_SavedAlarms = Annotated[
    dict[_JudgedKey, Alarm],
    PlainValidator(_alarms_of),
    PlainSerializer(lambda alarms: list(alarms.values()), return_type=list[Alarm]),
]
_SavedTimes = Annotated[
    dict[_JudgedKey, float],
    PlainValidator(lambda saved: {tuple(key): at for key, at in saved}),
    PlainSerializer(lambda times: list(times.items()), return_type=list[tuple[_JudgedKey, float]]),
]


@dataclass
class JudgedAlarms:
    """Decides about the alarms of judged series."""

    _waiting: _SavedAlarms = field(default_factory=dict)  # alarms of judged scores that are held
    _raised: _SavedAlarms = field(default_factory=dict)
    _drifting: _SavedTimes = field(default_factory=dict)  # judge drift, and since when
    # judges that have changed on the probes, since when
    _probed: dict[str, float] = field(default_factory=dict)

    def on_quality_alarm(self, alarm: Alarm, cheap: float | None, has_residual: bool) -> Alarm:
        """Return an alarm of the judged score itself, firing or held.

        Args:
            alarm: The alarm.
            cheap: When the cheap score last alarmed (Unix seconds), None if it is not watched.
            has_residual: Whether a residual is watched, which could explain the alarm.
        """
        key = alarm.service, alarm.metric, alarm.scorer
        moved = _has_moved(cheap, alarm.at)
        if key in self._drifting:
            held_for = f"explained by the drift of {alarm.scorer}"
        elif alarm.scorer in self._probed and not moved:
            held_for = _probe_cause(alarm.scorer)
        elif cheap is not None and has_residual and not moved:
            held_for = (
                "waiting for the cheap score or the residual to tell quality from judge drift"
            )
        else:
            self._raised[key] = alarm
            explained = moved and has_residual
            return with_state(alarm, "firing", CHEAP_MOVED) if explained else alarm
        self._waiting[key] = alarm
        return with_state(alarm, "held", held_for)

    def on_judge_alarm(self, alarm: Alarm, cheap: float | None) -> list[Alarm]:
        """Decide about an alarm of the residual; `cheap` is as in `on_quality_alarm`.

        Returns:
            The alarm, and that of the judged score if it is held from now on.
        """
        key = alarm.service, alarm.metric, alarm.scorer
        if cheap is None or _has_moved(cheap, alarm.at):
            why = "is not watched" if cheap is None else "has moved: quality, not the judge"
            return [with_state(alarm, "held", f"the cheap score {why}")]
        self._drifting[key] = alarm.at
        cause = "the cheap score has been quiet for a day: the judge has changed, not the answers"
        alarms = [with_state(alarm, "firing", cause)]
        waiting = self._waiting.get(key) or self._raised.pop(key, None)
        if waiting is not None:
            self._waiting[key] = waiting
            reason = f"explained by the drift of {alarm.scorer}"
            alarms.append(with_state(waiting, "held", reason, alarm.at))
        return alarms

    def on_probes(
        self, judges: Collection[str], drifting: bool, at: float, cheap: _CheapAlarmTime
    ) -> list[Alarm]:
        """Take in that stored probes, which no service can move, are judged otherwise or no longer.

        Returns:
            The alarms of these judges that are held from `at` (Unix seconds) on, those raised
            before included unless the cheap score moved.
        """
        if not drifting:
            for judge in judges:
                self._probed.pop(judge, None)
            for key in [key for key in self._waiting if key[2] in judges]:
                self._restart_wait(key, at)
            return []
        self._probed.update(dict.fromkeys(judges, at))
        for key, alarm in list(self._raised.items()):
            if key[2] in judges and not _has_moved(cheap(key[0], key[1]), at):
                del self._raised[key]
                self._waiting[key] = alarm
        return [
            with_state(alarm, "held", _probe_cause(key[2]), at)
            for key, alarm in sorted(self._waiting.items())
            if key[2] in judges
        ]

    def on_judge_cleared(self, key: _JudgedKey, at: float) -> None:
        """Take in that the residual is normal again: alarms that it explained wait once more."""
        self._drifting.pop(key, None)
        self._restart_wait(key, at)

    def _restart_wait(self, key: _JudgedKey, at: float) -> None:
        # the judged score takes hours to be seen to be back, too
        if key in self._waiting:
            self._waiting[key] = with_state(self._waiting[key], "held", at=at)

    def on_quality_cleared(self, key: _JudgedKey) -> None:
        """Take in that the judged score is normal again."""
        self._waiting.pop(key, None)
        self._raised.pop(key, None)

    def release(self, now: float, cheap: _CheapAlarmTime) -> list[Alarm]:
        """Raise waiting alarms if the cheap score has moved since, or nothing explained them."""
        alarms = []
        for key, alarm in sorted(self._waiting.items()):
            if key in self._drifting:
                continue
            if _has_moved(cheap(key[0], key[1]), now):
                cause = CHEAP_MOVED
            elif key[2] not in self._probed and now - alarm.at >= HOLD_SECONDS:
                cause = "neither the cheap score nor the residual explains it"
            else:
                continue
            del self._waiting[key]
            self._raised[key] = alarm
            alarms.append(with_state(alarm, "firing", cause, now))
        return alarms

    def forget(self, service: str) -> None:
        """Drop the alarms of a service, which has a new baseline."""
        self._waiting = {k: v for k, v in self._waiting.items() if k[0] != service}
        self._drifting = {k: v for k, v in self._drifting.items() if k[0] != service}
        self._raised = {k: v for k, v in self._raised.items() if k[0] != service}


def _has_moved(cheap: float | None, at: float) -> bool:
    return cheap is not None and at - cheap <= _QUIET_SECONDS


def _probe_cause(judge: str) -> str:
    return f"explained by the drift of {judge}: stored items are judged differently"
