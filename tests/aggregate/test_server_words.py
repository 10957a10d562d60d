"""The words of a judge's server stand in the incident about results that fail."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from typing import Any, cast

from ragmeter.aggregate.evidence import encode_evidence, quote_server, scores_in_evidence
from ragmeter.alerts.alert import Alert
from ragmeter.config.inputs import PrivacySettings
from ragmeter.core.score import ScoredTrace
from ragmeter.core.tiers import ScoringCost
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.parts.views import Incident
from ragmeter.scorers.llm.questions import JudgeFailed

from tests.parts.incidents.test_texts import incident
from tests.scorers.judge.fakes import FakeJudge, judge_trace
from tests.traces import make_trace

WORDS = "status 404: The model stub-0 does not exist \\u202e or [secret] is no key"


class Refusing(FakeJudge):
    """A judge whose server says why it gives no verdict."""

    async def ask(self, question: Any, cost: ScoringCost) -> Any:
        await asyncio.sleep(0)
        raise JudgeFailed("judge_error", "judge: denied", WORDS)


def failing(**changes: Any) -> Incident:
    bare = incident("measuring")
    alert: Alert = replace(
        bare.signals[0], metric="relevance", scorer="judge", unscored={"judge_error": 9}
    )
    return replace(bare, signals=(alert,), worst=("t1",), **changes)


def body(mode: str = "full") -> bytes:
    trace = make_trace(trace_id="t1")
    scores, _, _ = judge_trace(trace, Refusing())
    results = list(cast(dict[str, Any], scores).values())
    scored = ScoredTrace(
        trace_id="t1", service=trace.service, timestamp=0.0, status="ok", results=results
    )
    policy = ContentPolicy(PrivacySettings(content=mode))
    return encode_evidence(trace, scored, 100_000, content=policy)


def read(stored: list[dict[str, Any]], service: str, name: str) -> list[dict[str, Any]]:
    return stored if name == "t1" and service else []


def test_they_stand_there_once_whatever_content_is_kept() -> None:
    for mode in ("full", "none"):
        stored = scores_in_evidence(body(mode))
        quoted = quote_server(failing(), partial(read, stored))
        assert quoted.detail[-1] == f'The judge\'s server says: "{WORDS}"'
        assert len([line for line in quoted.detail if "server says" in line]) == 1
        assert all(line.isprintable() for line in quoted.detail)


def test_they_stand_in_no_other_incident() -> None:
    stored = json.loads(body())["results"]
    for other in (incident("errors"), failing(ended_at=1.0)):
        quoted = quote_server(replace(other, worst=("t1",)), partial(read, stored))
        assert quoted.detail == other.detail
    assert quote_server(failing(), partial(read, [])).detail == failing().detail
