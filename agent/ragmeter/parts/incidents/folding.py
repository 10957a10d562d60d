"""Which alerts get a notification of their own, and which are folded under another one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragmeter.alerts.alert import Alert

# Seconds that a warning waits for the critical alert of the same cause. With the default rules that
# came four minutes later at most (a latency that climbs: drift, then the five minutes of
# RagLatencyHigh; tests/system); a warning is nothing to get up for. As in deploy/compose.
_WARNING_WAIT = 600.0

# Seconds after an alert was announced in which others are taken for its consequences: the longest
# window of most default rules. What comes later may be another cause.
_FOLD_SECONDS = 3600.0

# Names of saved rows, before the id of an alert.
_ANNOUNCED, _FOLDED = "announced/", "folded/"

_MAX_FOLDED = 100  # alerts listed in one notification


class NotificationFolder:
    """Chooses which alerts get a notification of their own: one cause, one page.

    The first critical alert of a service is announced at once, and what fires within an hour of it
    is folded under it: warnings, and critical alerts of the same family (operation, quality,
    measuring). A warning waits a few minutes for a critical alert to fold under. An end is
    announced when no critical alert is left that was folded under the announced one.

    Args:
        family: Returns the family of an alert.
    """

    def __init__(self, family: Callable[[Alert], str]) -> None:
        self._family = family
        self._announced: dict[str, Alert] = {}  # announced as firing and not yet as over, by id
        self._folded: dict[str, Alert] = {}  # with `folded_under`, by id
        self._waiting: dict[str, float] = {}  # when a warning is announced at the latest, by id

    def find_leader(self, alert_id: str) -> str:
        """Return the id of the alert that an alert is folded under; empty if there is none."""
        folded = self._folded.get(alert_id)
        return folded.folded_under if folded is not None else ""

    def update(self, alerts: Sequence[Alert], now: float) -> list[Alert]:
        """Return the notifications of event time `now`, given all alerts that are held."""
        held = {alert.id: alert for alert in alerts if alert.fired_at is not None}
        for known in (self._announced, self._folded):
            for name, last in list(known.items()):
                alert = known[name] = held.get(name, last)
                alert.folded_under = last.folded_under
                if name not in held and alert.state == "firing":
                    alert.resolve("no longer held", now)
                elif alert.folded_under and alert.fired_at != last.fired_at:
                    del known[name]  # it fires anew, perhaps for another cause
        notifications = self._end()
        new = [
            alert
            for name, alert in held.items()
            if alert.state == "firing" and name not in self._announced and name not in self._folded
        ]
        self._waiting = {}
        for alert in sorted(new, key=_notification_rank):
            if alert.fired_at is None:
                raise RuntimeError("fired_at is missing")
            leader = self._leader(alert)
            if leader is not None:
                alert.folded_under = leader.id
                self._folded[alert.id] = alert
            elif alert.severity == "critical" or now - alert.fired_at >= _WARNING_WAIT:
                self._announced[alert.id] = alert
                notifications.append(alert)
            else:
                self._waiting[alert.id] = alert.fired_at + _WARNING_WAIT
        for alert in notifications:
            alert.folded = self._list_folded(alert)
        for name, alert in list(self._folded.items()):
            if alert.state == "resolved" and alert.folded_under not in self._announced:
                del self._folded[name]
        return [alert.copy() for alert in notifications]

    def next_due(self) -> float:
        """Return when the first of the waiting warnings is announced."""
        return min(self._waiting.values(), default=math.inf)

    def announced(self) -> list[tuple[Alert, list[Alert]]]:
        """Return copies of what is announced and not over, each with those folded under it."""
        return [
            (
                alert.copy(),
                [one.copy() for one in self._folded.values() if one.folded_under == alert.id],
            )
            for alert in self._announced.values()
        ]

    def rows(self) -> dict[str, Alert]:
        """Return copies of the whole state, as rows."""
        return {
            f"{prefix}{name}": alert.copy()
            for prefix, alerts in ((_ANNOUNCED, self._announced), (_FOLDED, self._folded))
            for name, alert in alerts.items()
        }

    def restore(self, rows: Mapping[str, Alert]) -> None:
        """Continue from rows."""
        for name, alert in sorted(rows.items()):
            known = self._announced if name.startswith(_ANNOUNCED) else self._folded
            known[alert.id] = alert

    def _end(self) -> list[Alert]:
        open_leaders = {
            alert.folded_under
            for alert in self._folded.values()
            if alert.state == "firing" and alert.severity == "critical"
        }
        ended = [
            alert
            for name, alert in sorted(self._announced.items())
            if alert.state == "resolved" and name not in open_leaders
        ]
        for alert in ended:
            del self._announced[alert.id]
        return ended

    def _leader(self, alert: Alert) -> Alert | None:
        """Return the announced alert that this one is taken for a consequence of."""
        critical = alert.severity == "critical"
        leaders = [
            leader
            for leader in self._announced.values()
            if leader.service == alert.service
            and (alert.fired_at or 0.0) - (leader.fired_at or 0.0) <= _FOLD_SECONDS
            and (leader.severity == "critical" or not critical)
            and (
                self._family(leader) == self._family(alert)
                or (leader.severity == "critical" and not critical)
            )
        ]
        return min(leaders, key=_notification_rank, default=None)

    def _list_folded(self, leader: Alert) -> list[dict[str, Any]]:
        names = ("id", "rule", "severity", "state", "segment", "metric", "scorer", "summary")
        folded = [alert for alert in self._folded.values() if alert.folded_under == leader.id]
        return [
            {name: getattr(alert, name) for name in names}
            for alert in sorted(folded, key=_notification_rank)[:_MAX_FOLDED]
        ]


def _notification_rank(alert: Alert) -> tuple[bool, float, str]:
    return alert.severity != "critical", alert.fired_at or 0.0, alert.id
