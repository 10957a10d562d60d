"""Make the notification of an incident that opens, gets worse, is over or can't be judged.

The agent makes it in the transaction that stores the state of the incident.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from ragmeter.alerts.alert import clean_text
from ragmeter.parts.incident_words import event_of
from ragmeter.parts.views import Incident
from ragmeter.store.rows import OutboxItem

PAYLOAD_VERSION = 1
MAX_TEXT = 1_000  # characters of a text in the payload


def build_notification(incident: Incident, now: float) -> OutboxItem:
    """Make the outbox item of what is to be told of an incident, at wall time `now`.

    Its id is the same however often it is made for the same event, so a redone step of work
    enqueues nothing new, and receivers can tell a repetition.
    """
    event, at = event_of(incident)
    # Milliseconds: evaluation steps are seconds, and an id must not depend on float printing.
    item_id = f"{incident.id}-{math.floor(at * 1000)}-{event.replace(' ', '-')}"
    body = {
        "version": PAYLOAD_VERSION,
        "event": event,
        "id": item_id,
        "incident": _clean_texts(asdict(incident)),
    }
    return OutboxItem(item_id, incident.id, json.dumps(body, ensure_ascii=False), now)


def _clean_texts(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value, MAX_TEXT)
    if isinstance(value, dict):
        return {clean_text(key, MAX_TEXT): _clean_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_texts(item) for item in value]
    return value
