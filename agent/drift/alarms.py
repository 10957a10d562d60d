"""Drift alarms, and the decision which alarms of judged metrics are raised and which are held back.

Quality or judge? Which of a judged metric's alarms are raised, and which are held back.

A residual alarm while the cheap score has been quiet for a day is judge drift, and so are stored
probes that the judge judges otherwise; the judged score's own alarm is then a consequence and held.
Where the judged score moves first, it waits a while for what tells: the cheap score (quality,
raised) or the residual (judge).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from ragmeter.drift.judge_drift import QUIET_SECONDS

AlarmKind = Literal["rate", "mean", "distribution", "latency", "judge"]

_AlarmState = Literal["firing", "held", "cleared"]
"""`held`: true of the series, but explained by another alarm (`cause` says which) or waiting for
what tells quality from judge."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """`metric` is the stage for latency. `before` and `after` are means; for a distribution or
    latency the share of values above `edge`, where it changed most, and for judge drift the mean
    of judge minus calibrated cheap score. The shift was picked because it is large: `after` tends
    to overstate it a little. `at` is event time, `since` the estimated time of the change with
    its 95 % set.
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
    provisional: bool
    edge: float | None = None
    segment: str | None = None
    segment_words: str = ""
    cause: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Which alarm this is, whatever its state."""
        return self.service, self.metric, self.scorer, self.kind

    def describe(self) -> str:
        """What happened, in a sentence or two."""
        what = {
            "rate": f"{self.metric} went from {self.before:.3g} to {self.after:.3g}",
            "mean": f"{self.metric} went from {self.before:.3g} to {self.after:.3g}",
            "judge": f"{self.scorer} judges {self.metric} differently: its distance from the cheap "
            f"score went from {self.before:.3g} to {self.after:.3g}",
        }.get(
            self.kind,
            f"the share of {self.metric} above {self.edge or 0.0:.3g} went from {self.before:.3g} "
            f"to {self.after:.3g}",
        )
        return ". ".join(part for part in (what, self.cause, self.segment_words) if part)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def with_state(alarm: Alarm, state: _AlarmState, cause: str = "", at: float | None = None) -> Alarm:
    """The same alarm in another state, from `at` on."""
    return replace(alarm, state=state, cause=cause, at=alarm.at if at is None else at)


HOLD_SECONDS = 6 * 3600.0
"""Seconds that a judged score's alarm waits for the residual or the cheap score: the residual finds
a moderate swap (10 to 16 % bad) in 160 minutes, a hard one in 70."""

_JudgedKey = tuple[str, str, str]  # service, metric, judge
_CheapAlarmTime = Callable[[str, str], float | None]
"""When the cheap score of a (service, metric) was last alarmed, None where it is not watched."""


class JudgedAlarms:
    """Per judged series: the judged alarm that waits, and whether its judge is known to drift."""

    def __init__(self, hold: float = HOLD_SECONDS, quiet: float = QUIET_SECONDS) -> None:
        self._hold, self._quiet = hold, quiet
        self._waiting: dict[_JudgedKey, Alarm] = {}
        self._drifting: dict[_JudgedKey, float] = {}
        self._probed: dict[str, float] = {}
        """Judges whose probes say that they have changed, and since when."""
        self._raised: dict[_JudgedKey, Alarm] = {}
        """Judged alarms that are out."""

    def on_quality_alarm(self, alarm: Alarm, cheap: float | None, has_residual: bool) -> Alarm:
        """The judged score's own alarm. `cheap` is when the cheap score was last alarmed, None
        where it is not watched."""
        key = alarm.service, alarm.metric, alarm.scorer
        if key in self._drifting:
            self._waiting[key] = alarm
            return with_state(alarm, "held", f"explained by the drift of {alarm.scorer}")
        if alarm.scorer in self._probed and not self._moved(cheap, alarm.at):
            self._waiting[key] = alarm
            return with_state(alarm, "held", _probe_cause(alarm.scorer))
        if cheap is None or not has_residual:
            self._raised[key] = alarm
            return alarm
        if self._moved(cheap, alarm.at):
            self._raised[key] = alarm
            return with_state(alarm, "firing", "the cheap score has moved, too")
        self._waiting[key] = alarm
        return with_state(alarm, "held", "waiting for what tells quality from judge")

    def _moved(self, cheap: float | None, at: float) -> bool:
        return cheap is not None and at - cheap <= self._quiet

    def on_judge_alarm(self, alarm: Alarm, cheap: float | None) -> list[Alarm]:
        """The residual's alarm."""
        key = alarm.service, alarm.metric, alarm.scorer
        if cheap is None or self._moved(cheap, alarm.at):
            why = "is not watched" if cheap is None else "has moved: quality, not the judge"
            return [with_state(alarm, "held", f"the cheap score {why}")]
        self._drifting[key] = alarm.at
        cause = "the cheap score has been quiet for a day: the judge has changed, not the answers"
        out = [with_state(alarm, "firing", cause)]
        waiting = self._waiting.get(key) or self._raised.pop(key, None)
        if waiting is not None:
            self._waiting[key] = waiting
            reason = f"explained by the drift of {alarm.scorer}"
            out.append(with_state(waiting, "held", reason, alarm.at))
        return out

    def on_probes(
        self, judges: Collection[str], drifting: bool, at: float, cheap: _CheapAlarmTime
    ) -> list[Alarm]:
        """Stored items, which no drift of a service can move, are judged otherwise from `at` on,
        or no longer. What is raised of those judges is held, but where the cheap score has moved,
        too."""
        if not drifting:
            for judge in judges:
                self._probed.pop(judge, None)
            for key in [key for key in self._waiting if key[2] in judges]:
                self._wait_anew(key, at)
            return []
        self._probed.update(dict.fromkeys(judges, at))
        for key, alarm in list(self._raised.items()):
            if key[2] in judges and not self._moved(cheap(key[0], key[1]), at):
                del self._raised[key]
                self._waiting[key] = alarm
        return [
            with_state(alarm, "held", _probe_cause(key[2]), at)
            for key, alarm in sorted(self._waiting.items())
            if key[2] in judges
        ]

    def on_judge_cleared(self, key: _JudgedKey, at: float) -> None:
        """The judge is itself again. What its drift held waits once more."""
        self._drifting.pop(key, None)
        self._wait_anew(key, at)

    def _wait_anew(self, key: _JudgedKey, at: float) -> None:
        """From `at` on: the judged score takes hours to be seen to be back, too."""
        if key in self._waiting:
            self._waiting[key] = with_state(self._waiting[key], "held", at=at)

    def on_quality_cleared(self, key: _JudgedKey) -> None:
        """The judged score is back."""
        self._waiting.pop(key, None)
        self._raised.pop(key, None)

    def release(self, now: float, cheap: _CheapAlarmTime) -> list[Alarm]:
        """Waiting alarms that are raised by now: the cheap score has moved since, or time is up and
        no judge drift explains them."""
        out = []
        for key, alarm in sorted(self._waiting.items()):
            if key in self._drifting:
                continue
            if self._moved(cheap(key[0], key[1]), now):
                cause = "the cheap score has moved, too"
            elif key[2] in self._probed:
                continue
            elif now - alarm.at >= self._hold:
                cause = "neither the cheap score nor the residual says why"
            else:
                continue
            del self._waiting[key]
            self._raised[key] = alarm
            out.append(with_state(alarm, "firing", cause, now))
        return out

    def forget(self, service: str) -> None:
        """A new baseline: what was out or waiting is settled."""
        self._waiting = {k: v for k, v in self._waiting.items() if k[0] != service}
        self._drifting = {k: v for k, v in self._drifting.items() if k[0] != service}
        self._raised = {k: v for k, v in self._raised.items() if k[0] != service}

    def dump(self) -> dict[str, Any]:
        return {
            "waiting": [alarm.to_dict() for alarm in self._waiting.values()],
            "drifting": [[*key, at] for key, at in self._drifting.items()],
            "raised": [alarm.to_dict() for alarm in self._raised.values()],
            "probed": self._probed,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._waiting, self._raised = (
            {(a.service, a.metric, a.scorer): a for a in (Alarm(**item) for item in state[name])}
            for name in ("waiting", "raised")
        )
        self._drifting = {(row[0], row[1], row[2]): row[3] for row in state["drifting"]}
        self._probed = dict(state.get("probed", {}))


def _probe_cause(judge: str) -> str:
    return f"explained by the drift of {judge}: stored items are judged differently"
