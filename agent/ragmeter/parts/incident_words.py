"""Write incidents in the few words that every surface shares; pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

from ragmeter.parts.views import Incident

IncidentEvent = Literal["opened", "worse", "no traffic", "not measured", "over"]
"""What a message about an incident tells."""

MARKS = {"page": "■", "warning": "▲"}
"""The mark before an incident, by its severity."""

EVERYWHERE = "all requests alike"  # where no segment stands out


def event_of(incident: Incident) -> tuple[IncidentEvent, float]:
    """Return what is to be told of an incident now, and since when that is so."""
    if incident.state == "over":
        return "over", incident.updated_at if incident.ended_at is None else incident.ended_at
    if incident.state != "open":
        return incident.state, incident.updated_at
    if incident.worsened_at is not None:
        return "worse", incident.worsened_at
    return "opened", incident.opened_at


def headline(incident: Incident) -> str:
    """Return what is wrong, without the name of the service."""
    return incident.title.removeprefix(f"{incident.service}: ")


def describe_change(incident: Incident) -> str:
    """Return the new value of a tag that came with the onset; empty if none did."""
    change = incident.change
    if change is None:
        return ""
    return f"{change.tag} {change.value} at {clock(change.at)}"


def describe_since(incident: Incident, now: float | None) -> str:
    """Return since when it lasts and for how long, or from when until when it did."""
    end = now if incident.ended_at is None else incident.ended_at
    lasted = "" if end is None or end < incident.since else length(end - incident.since)
    if incident.ended_at is not None:
        return f"{clock(incident.since)} to {clock(incident.ended_at)}" + (
            f", for {lasted}" if lasted else ""
        )
    return f"since {clock(incident.since)}" + (f" ({lasted})" if lasted else "")


def clock(seconds: float | None, now: float | None = None) -> str:
    """Return a time of the day, with the date if it is not within twelve hours of `now`."""
    at = max(0.0, seconds or 0.0)
    near = now is None or abs(now - at) < 43_200
    return f"{datetime.fromtimestamp(at, UTC):{'%H:%M' if near else '%d %b %H:%M'}} UTC"


def length(seconds: float) -> str:
    """Return a length of time in minutes, hours or days."""
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{max(1, minutes)} min"
    hours = seconds / 3600
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"


def is_closed(incident: Incident) -> bool:
    """Return whether nothing more is told of an incident: it is over, or nobody will know."""
    return incident.over or incident.ended_at is not None


def still_open(incidents: Iterable[Incident]) -> list[Incident]:
    """Return those that are not closed."""
    return [incident for incident in incidents if not is_closed(incident)]
