"""Quality or judge? Which of a judged metric's alarms are raised, and which are held back.

A residual or probe-set alarm while the cheap score has been quiet for a day is judge drift; the
judged score's own alarm is then a consequence and held. Where the judged score moves first, it
waits a while for what tells: the cheap score (quality, raised) or the residual (judge).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.drift.alarm import Alarm, with_state
from agent.drift.judge import QUIET

__all__ = ["HOLD", "Verdicts"]

HOLD = 6 * 3600.0
"""Seconds that a judged score's alarm waits for the residual or the cheap score: the residual finds
a moderate swap (10 to 16 % bad) in 160 minutes, a hard one in 70."""

Key = tuple[str, str, str]  # service, metric, judge


class Verdicts:
    """Per judged series: the judged alarm that waits, and whether its judge is known to drift."""

    def __init__(self, hold: float = HOLD, quiet: float = QUIET) -> None:
        self._hold, self._quiet = hold, quiet
        self._waiting: dict[Key, Alarm] = {}
        self._drifting: dict[Key, float] = {}
        self._raised: dict[Key, Alarm] = {}
        """Judged alarms that are out."""

    def quality(self, alarm: Alarm, cheap: float | None, has_residual: bool) -> Alarm:
        """The judged score's own alarm. `cheap` is when the cheap score was last alarmed, None
        where it is not watched."""
        key = alarm.service, alarm.metric, alarm.scorer
        if key in self._drifting:
            self._waiting[key] = alarm
            return with_state(alarm, "held", f"explained by the drift of {alarm.scorer}")
        if cheap is None or not has_residual:
            self._raised[key] = alarm
            return alarm
        if alarm.at - cheap <= self._quiet:
            self._raised[key] = alarm
            return with_state(alarm, "firing", "the cheap score has moved, too")
        self._waiting[key] = alarm
        return with_state(alarm, "held", "waiting for what tells quality from judge")

    def judge(self, alarm: Alarm, cheap: float | None, probes: bool = False) -> list[Alarm]:
        """The residual's alarm, or that of `probes`: the same stored items judged again, which no
        drift of the service can move."""
        key = alarm.service, alarm.metric, alarm.scorer
        quiet = cheap is not None and alarm.at - cheap > self._quiet
        if not quiet:
            if probes:
                return [with_state(alarm, "firing", "stored items are judged differently")]
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

    def judge_cleared(self, key: Key) -> None:
        """The judge is itself again. What its drift held waits once more."""
        self._drifting.pop(key, None)

    def quality_cleared(self, key: Key) -> None:
        """The judged score is back."""
        self._waiting.pop(key, None)
        self._raised.pop(key, None)

    def release(self, now: float, cheap: Callable[[str, str], float | None]) -> list[Alarm]:
        """Waiting alarms that are raised by now: the cheap score has moved since, or time is up and
        no judge drift explains them."""
        out = []
        for key, alarm in sorted(self._waiting.items()):
            if key in self._drifting:
                continue
            moved = cheap(key[0], key[1])
            if moved is not None and now - moved <= self._quiet:
                cause = "the cheap score has moved, too"
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
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._waiting, self._raised = (
            {(a.service, a.metric, a.scorer): a for a in (Alarm(**item) for item in state[name])}
            for name in ("waiting", "raised")
        )
        self._drifting = {(row[0], row[1], row[2]): row[3] for row in state["drifting"]}
