"""Which signals are one cause at one service, and which of them says best what is wrong.

An outage moves errors, latency, cost and everything that is measured of answers. Signals whose
onsets may be the same are one incident; a later onset of another number is another one. A number
that moves on while its incident stands is the same incident, which gets worse.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragmeter.core.durations import parse_duration
from ragmeter.parts.incidents.signals import IncidentSignal, Onset, without_known_goals
from ragmeter.parts.views import IncidentKind

# What stands first moves what stands after it: a request that fails has no passages, wrong
# passages bring refusals, and refusals are short, cheap and supported by nothing.
_ORDER: Sequence[IncidentKind] = (
    "no_traffic",
    "failures",
    "errors",
    "timeouts",
    "empty",
    "same_passages",
    "wrong_passages",
    "cut_off",
    "refusals",
    "ungrounded",
    "slow",
    "incomplete",
    "citations",
    "canaries",
    "rule",
    "retries",
    "cost",
    "measuring",
)

# A warning of these leads all the same: what users see comes of it.
_CAUSES = ("wrong_passages", "same_passages")
_CONSEQUENCES = ("refusals", "ungrounded", "incomplete", "citations", "wrong_passages")


def choose_lead(signals: Sequence[IncidentSignal]) -> IncidentSignal:
    """Return the signal that says what is wrong: a page before a warning, a cause first."""
    known = without_known_goals(signals)
    firing = [one for one in known if one.alert.state == "firing"] or known
    return min(firing, key=lambda one: _lead_rank(one, firing))


def _lead_rank(
    signal: IncidentSignal, signals: Sequence[IncidentSignal]
) -> tuple[bool, int, float, str]:
    critical = signal.alert.severity == "critical"
    if signal.kind in _CAUSES:
        critical = critical or any(
            one.alert.severity == "critical" and one.kind in _CONSEQUENCES for one in signals
        )
    total = signal.number is None or signal.number.metric != "latency"
    stage = 0.0 if total or (signal.number and signal.number.scorer == "total") else 1.0
    return not critical, _ORDER.index(signal.kind), stage, signal.key


def choose_onset(signals: Sequence[IncidentSignal]) -> Onset:
    """Return the onset that is known best."""
    return min(
        (signal.onset for signal in signals), key=lambda one: (one.upper - one.lower, one.at)
    )


def belongs(signal: IncidentSignal, members: Sequence[IncidentSignal], onset: Onset) -> bool:
    """Return whether a signal is of the cause of an incident that stands."""
    if signal.family != members[0].family:
        return False
    if signal.onset.near(onset):
        return True
    if signal.of_goal:  # what began within the time of its level may be why it is missed
        return onset.at >= signal.onset.at - parse_duration(signal.alert.window)
    return any(_same_number(signal, one) for one in members)


def _same_number(one: IncidentSignal, other: IncidentSignal) -> bool:
    if one.alert.id == other.alert.id:
        return True
    return bool(one.question) and one.question == other.question
