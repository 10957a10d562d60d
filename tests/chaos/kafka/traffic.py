"""The traffic of a chaos run: a function of the seed and a number, so that a run can be repeated.

All of it lies within 25 minutes of event time, however many traces there are: what is counted does
not hang on how fast the machine is, and all of it fits into the longest window.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ragmeter.alerts.rules import default_documents

from tests.traces import START, trace_line

__all__ = [
    "BURST",
    "FAILURE_KINDS",
    "FEEDBACK",
    "RISE",
    "RULES",
    "SERVICES",
    "SETTINGS",
    "SPAN",
    "TRACES",
    "Message",
    "Sending",
    "labels",
    "messages",
    "rules_text",
    "sendings",
]

SPAN = 1500.0  # seconds of event time
SERVICES = tuple(f"service-{n}" for n in range(12))  # three for each of four workers
RISES, BURSTS = SERVICES[1], SERVICES[2]

POISON: tuple[bytes | None, ...] = (
    b"{no json ",
    b"\xff\xfe\x00",
    b"[]",
    b'{"trace_id": 1}',
    b"",
    None,  # a tombstone
)
POISON_SHARE = 0.01
AGAIN_SHARE = 0.005  # of traces that their producer sends a second time, a while later
AGAIN_WITHIN = 500  # messages

Message = tuple[int, bytes | None]
"""Number of the trace, -1 for poison; the body."""

TRACES, FEEDBACK = "rag.traces", "rag.feedback"

POISON_LABELS: tuple[bytes | None, ...] = (
    b"{no json ",
    b'{"trace_id": "t1", "answer": {"helpful": true}}',  # of no service
    b"[]",
    None,
)
LABEL_SHARE = 0.2  # of the traces that are labelled
EARLY_SHARE = 0.2  # of the labels that are sent before their trace
MORE_SHARE = 0.3  # of the labels to which their sender adds others later
LABELS_WITHIN = 300  # traces


class Sending(NamedTuple):
    """A message that the producer sends: `number` of the trace, -1 for poison and labels."""

    topic: str
    number: int
    body: bytes | None


SETTINGS: dict[str, Any] = {
    # the long one holds the whole run; the short one is for alerts that end, and is not compared,
    # since it hangs on the moment of the look
    "windows": ["5m", "24h"],
    # one series may lie in several partitions with its overflow label, each with detectors of its
    # own: what they find is a matter of order
    "drift": {"enabled": False},
}

BURST = "ChaosErrorsBurst"
RISE = "ChaosErrorsRise"
FAILURE_KINDS = ("errors", "failures", "timeouts", "empty")
"""The kinds of the incidents that the rules open."""

RULES: list[dict[str, Any]] = [
    {
        "name": RISE,
        "severity": "warning",
        "metric": "error",
        "op": ">",
        "threshold": 0.14,
        "window": "24h",
        "for": "0s",
        "min_samples": 200,
    },
    {
        "name": BURST,
        "severity": "critical",
        "metric": "error",
        "op": ">",
        "threshold": 0.3,
        "window": "5m",
        "for": "0s",
        # traces of one partition may come later than those of others: no flutter at the end
        "keep_firing_for": "2m",
        "min_samples": 30,
        "services": [BURSTS],
    },
]
"""The first fires for two services and stays, the second begins and ends, whatever the order of
the partitions."""


def rules_text() -> str:
    """YAML (which JSON is) of these rules alone: of the default ones some would be true for a
    moment, in one order of the partitions and not in another."""
    off = [
        {"name": rule["name"], "enabled": False}
        for document in default_documents()
        for rule in document["rules"]
    ]
    return json.dumps({"rules": RULES + off})


def _trace(number: int, total: int, chance: random.Random) -> bytes:
    at = number / total
    service = SERVICES[number % len(SERVICES)]
    wrong = 0.05
    if service == RISES and at > 0.5:
        wrong = 0.7
    if service == BURSTS and 0.2 < at < 0.4:
        wrong = 0.8
    status = "error" if chance.random() < wrong else "ok"
    answer = "" if chance.random() < 0.04 else f"Click Forgot password {number} [1]."
    if chance.random() < 0.2:
        answer += " The moon is made of cheese [2]."
    return trace_line(
        number,
        service=service,
        timestamp=START + at * SPAN,
        status=status,
        answer=answer,
        timings={"total": round(chance.lognormvariate(0, 0.8), 3), "retrieval": 0.1},
    )


def messages(total: int, seed: int) -> Iterator[Message]:
    """`total` good traces, and between them poison and repetitions."""
    chance = random.Random(f"traffic {seed}")
    again: dict[int, list[Message]] = {}
    for number in range(total):
        message = (number, _trace(number, total, chance))
        yield message
        yield from again.pop(number, [])
        if chance.random() < POISON_SHARE:
            body = chance.choice(POISON)
            yield -1, body and body + (b"%d" % number if body.startswith(b"{no") else b"")
        if chance.random() < AGAIN_SHARE:
            later = number + chance.randrange(AGAIN_WITHIN)
            again.setdefault(max(later, number + 1), []).append(message)
    for left in again.values():
        yield from left


def _label(number: int, total: int, later: float, **given: object) -> bytes:
    """Labels of a trace that are given `later` seconds after it."""
    item = {
        "trace_id": f"t{number}",
        "service": SERVICES[number % len(SERVICES)],
        "timestamp": START + number / total * SPAN + later,
    }
    return json.dumps({**item, **given}).encode()


def labels(total: int, seed: int) -> Mapping[int, list[bytes | None]]:
    """The labels, by the number of the trace after which each is sent.

    Some come before their trace, some twice, some in two pieces; between them is poison. None is
    corrected: how often a result was counted anew then hangs on the order.
    """
    chance = random.Random(f"labels {seed}")
    found: dict[int, list[bytes | None]] = defaultdict(list)

    def add(number: int, body: bytes | None, least: int = 0) -> None:
        found[min(total - 1, max(0, number + chance.randrange(least, LABELS_WITHIN)))].append(body)

    for number in range(total):
        if chance.random() < LABEL_SHARE:
            answer = {"helpful": chance.random() < 0.7, "incomplete": chance.random() < 0.2}
            body = _label(number, total, 1.0, answer=answer)
            add(number, body, -LABELS_WITHIN if chance.random() < EARLY_SHARE else 0)
            if chance.random() < AGAIN_SHARE:
                add(number, body)
            if chance.random() < MORE_SHARE:
                verdict = {"answered": chance.random() < 0.9}
                add(number, _label(number, total, 60.0, verdict=verdict))
        if chance.random() < LABEL_SHARE * POISON_SHARE:
            add(number, chance.choice(POISON_LABELS))
    return found


def sendings(total: int, seed: int) -> Iterator[Sending]:
    """All that is sent: traces with their labels between them."""
    waiting = dict(labels(total, seed))
    for number, body in messages(total, seed):
        yield Sending(TRACES, number, body)
        for label in waiting.pop(number, []):
            yield Sending(FEEDBACK, -1, label)
