"""One state machine in two homes: both count, alert, remember and restore alike."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ragmeter.alerts.rules import parse_rules
from ragmeter.core.feedback import Feedback

from tests.backends import BACKENDS, Backend, Embedded, Partition, settings_of
from tests.embedded.test_agent import ERRORS
from tests.embedded.test_privacy import MAIL
from tests.traces import START, trace_line
from tests.waiting import until

Build = Callable[..., Backend]


@pytest.fixture(params=BACKENDS, ids=lambda kind: kind.__name__.lower())
def build(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Build]:
    started: list[Backend] = []

    def start(rules: Sequence[Any] = ERRORS["rules"], **tree: Any) -> Backend:
        settings = settings_of(tmp_path, **tree)
        started.append(request.param(settings, parse_rules([{"rules": rules}])))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def chosen(backend: Backend, prefix: str) -> dict[str, float]:
    return {name: value for name, value in backend.metrics().items() if name.startswith(prefix)}


@pytest.mark.slow
def test_a_notification_waits_until_it_was_delivered_also_across_restarts(build: Build) -> None:
    backend = build()
    backend.feed([trace_line(n, status="error" if n < 200 else "ok") for n in range(3000)])
    (firing,) = backend.sent()  # its end waits behind it
    backend.view.outbox.retry(firing.id, START + 10**7)
    assert backend.sent() == []
    backend.restart()
    assert [one.id for one in backend.sent()] == [firing.id], "of a clock that nobody knows"
    backend.view.outbox.done(firing.id)
    backend.restart()
    (resolved,) = backend.sent()
    assert (resolved.key, resolved.id) == (firing.key, firing.id.replace("open", "over"))
    backend.view.outbox.done(resolved.id)
    backend.restart()
    assert backend.sent() == []


def test_the_embedded_agent_writes_deliveries_down_while_nothing_arrives(tmp_path: Path) -> None:
    backend = Embedded(settings_of(tmp_path), parse_rules([ERRORS]))
    backend.feed([trace_line(n, status="error") for n in range(200)])
    (firing,) = backend.sent()
    store = backend.view._store
    assert [one.id for one in store.saved().outbox] == [firing.id]
    backend.view.outbox.done(firing.id)
    until(lambda: not store.saved().outbox)
    backend.stop()


def test_results_are_handed_on_for_export(build: Build) -> None:
    backend = build(privacy={"redact": ["email"]})
    backend.feed([trace_line(n, query=f"Who is {MAIL}?") for n in range(20)] + [trace_line(3)])
    exported = {trace.trace_id: (trace, scored) for trace, scored in backend.results}
    assert sorted(exported) == sorted(f"t{n}" for n in range(20))
    trace, scored = exported["t7"]
    assert trace.query == "Who is [email]?"
    assert (scored.service, scored.trace_id) == (trace.service, "t7")
    assert any(score.value is not None for score in scored.results)


# What each counts of its own way in and out, which the other has not.
OWN = (
    "ragmeter_build",
    "ragmeter_traces_received",
    "ragmeter_traces_duplicate",
    "ragmeter_queue",
    "ragmeter_feedback_received",
    "ragmeter_sampling_scale",
    "ragmeter_dedupe",
    "python_",
    "process_",
    "ragmeter_clock_skew",
    "ragmeter_held",
    "ragmeter_oldest",
    "ragmeter_otlp",
)


def shared(backend: Backend) -> dict[str, float]:
    return {name: value for name, value in backend.metrics().items() if not name.startswith(OWN)}


def story(part: int) -> tuple[list[bytes], list[Feedback]]:
    """Traces in two hours of several services, some repeated, late or broken, and labels of them:
    in the second part the service `bot` fails, and labels are corrected."""
    rng = random.Random(part)
    traces: list[bytes] = []
    labels: list[Feedback] = []
    for n in range(150 * part, 150 * part + 150):
        at = START + 50 * n
        broken = part and rng.random() < 0.7
        traces.append(
            trace_line(
                n,
                service=rng.choice(["bot", "bot", "wiki"]),
                timestamp=at if rng.random() < 0.9 else at - rng.choice([600, 90_000]),
                status="error" if broken else "ok",
                query=f"Question {rng.randrange(9)}?",
                answer=" ".join(rng.choices(["zebras", "sleep", "standing", "never"], k=5)),
                tags={"tenant": rng.choice("xyz")},
            )
        )
        if rng.random() < 0.2:
            traces.append(rng.choice(traces))
        if rng.random() < 0.5:
            about = max(0, n - rng.choice([0, 1, 7, 160]))
            answer = {"helpful": rng.random() < 0.6}
            when = START + 50 * n
            fields = {"trace_id": f"t{about}", "timestamp": when, "answer": answer}
            labels.append(
                Feedback.model_validate({**fields, "service": rng.choice(["bot", "wiki"])})
            )
    return traces, labels


@pytest.mark.slow
def test_both_homes_count_alert_and_remember_the_same(tmp_path: Path) -> None:
    found: list[list[Any]] = []
    for kind in (Embedded, Partition):
        backend = kind(
            settings_of(tmp_path / kind.__name__, segments=["tenant"]), parse_rules([ERRORS])
        )
        seen: list[Any] = []
        for part in range(2):
            traces, labels = story(part)
            for line in traces:  # of both services in the order of their times, as they come
                backend.feed([line])
            backend.label(labels)
            seen.append(shared(backend))
            seen.append([(alert.id, alert.state, alert.worst) for alert in backend.view.alerts()])
            backend.restart()
            seen.append(shared(backend))
        promoted = backend.promote("bot")
        seen += [sorted(promoted["services"]), sorted(one.id for one in backend.sent())]
        assert seen[-1], "no alert was sent"
        seen.append(shared(backend))
        backend.stop()
        found.append(seen)
    for ours, theirs in zip(*found, strict=True):
        if isinstance(ours, dict):
            assert sorted(ours.items() ^ theirs.items()) == []
        assert ours == theirs


LOW = {
    "name": "Low",
    "severity": "critical",
    "metric": "grounding",
    "scorer": "mini",
    "op": "<",
    "threshold": 0.9,
    "window": "1h",
    "min_samples": 5,
}


def test_an_alert_says_which_words_nothing_supports(build: Build) -> None:
    tree = {"windows": ["1h"], "sampling": {"model": 1}, "models": {"cpu_share": 1}}
    backend = build(rules=[LOW], **tree, limits={"min_samples": 5})
    for start in (0, 400):
        answer = "The router costs 99 dollars and sings."
        backend.feed([trace_line(n + start, answer=answer) for n in range(8)])
    (reported,) = {item.body for item in backend.sent()}
    words = "Unsupported: 'The router costs 99 dollars and sings.'"
    assert any(line.startswith(words) for line in json.loads(reported))
