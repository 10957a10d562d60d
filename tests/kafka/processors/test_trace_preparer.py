"""Redaction, lookup of texts and withheld quotes, as in the embedded agent; no broker."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters
from ragmeter.ingest.native import DecodedTrace, decode_trace
from ragmeter.ingest.passage_resolver import PassageResolver
from ragmeter.kafka.owners import OutRecord
from ragmeter.kafka.processors.delivery import TracePreparer
from ragmeter.kafka.score_records import decode_score
from ragmeter.trace import Trace

from tests.embedded.test_privacy import MAIL, secretive
from tests.ingest.test_passage_resolver import Texts
from tests.kafka.messages import Processing, message
from tests.kafka.settings import settings_of
from tests.traces import trace_dict

RESOLVERS = {"sources": [{"name": "kb", "url": "http://h/{id}", "timeout_seconds": 30}]}


def handled(
    settings: Settings, *values: bytes
) -> tuple[list[OutRecord], list[OutRecord], Counters]:
    """The records for the scores and the dead letters after these messages."""
    processing = Processing(settings)
    found = processing.take(*(message(value, n) for n, value in enumerate(values)))
    dead = [one for one in found if one.topic == settings.kafka.topics.dead]
    return [one for one in found if one not in dead], dead, processing.counters


def written(records: list[OutRecord]) -> bytes:
    return repr(records).encode()


def prepared(preparing: TracePreparer, trace: dict[str, Any], *, again: bool = False) -> Trace:
    item = decode_trace(json.dumps(trace).encode(), 10**6)
    assert isinstance(item, DecodedTrace)

    async def go() -> Trace:
        async with preparing:
            return await preparing.prepare(item, again=again)

    return asyncio.run(go())


@pytest.mark.parametrize("content", ["full", "none"])
def test_nothing_unredacted_leaves_the_score_stage(content: str) -> None:
    settings = settings_of(privacy={"redact": ["email"], "content": content}, segments=["who"])
    broken = f'{{"query": "{MAIL}'.encode()
    good = json.dumps(secretive(1, MAIL)).encode()
    scores, dead, counters = handled(settings, good, broken)
    assert len(scores) == len(dead) == 1
    assert MAIL.encode() not in written(scores) + written(dead)
    assert b"[email]" in written(scores)  # of the tag: it names a segment
    assert (dead[0].key, dead[0].value) == (None, b"")
    assert dead[0].headers["truncated"] == b"1"
    assert counters.get("ragmeter_redactions_total", (("rule", "email"),)) == 6


def test_dead_letters_are_kept_as_they_came_where_nothing_is_hidden() -> None:
    _, dead, _ = handled(settings_of(), b"{broken")
    assert (dead[0].key, dead[0].value) == (b"k", b"{broken")
    assert "truncated" not in dead[0].headers


def test_of_the_tags_only_segments_and_versions_cross_where_texts_are_not_kept() -> None:
    tags = {"secret": "albatross", "tenant": "a"}
    line = json.dumps(trace_dict(1, tags=tags, model="m1")).encode()
    scores, _, _ = handled(settings_of(privacy={"content": "none"}, segments=["tenant"]), line)
    assert decode_score(scores[0].value or b"").scored.tags == {"tenant": "a", "model": "m1"}
    scores, _, _ = handled(settings_of(segments=["tenant"]), line)
    assert decode_score(scores[0].value or b"").scored.tags["secret"] == "albatross"


def test_what_a_resolver_gave_is_redacted_too() -> None:
    settings = settings_of(privacy={"redact": ["email"]}, resolvers=RESOLVERS)
    counters = Counters()
    resolver = PassageResolver(settings.resolvers, lookups={"kb": Texts(a=f"Ask {MAIL}.")})
    bare = trace_dict(1, passages=[{"id": "a"}], missing={"passages": "passages_id_only"})
    trace = prepared(TracePreparer(settings, counters, resolver=resolver), bare)
    assert [passage.text for passage in trace.passages or ()] == ["Ask [email]."]
    assert "passages" not in trace.missing
    labels = (("resolver", "kb"), ("outcome", "found"))
    assert counters.get("ragmeter_resolver_requests_total", labels) == 1
    assert counters.get("ragmeter_redactions_total", (("rule", "email"),)) == 1


def test_what_was_counted_once_is_not_again() -> None:
    settings = settings_of(privacy={"redact": ["email"]})
    counters = Counters()
    trace = prepared(TracePreparer(settings, counters), secretive(1, MAIL), again=True)
    assert MAIL not in trace.model_dump_json()
    assert not list(counters.items())


def test_a_source_that_hangs_costs_a_trace_its_texts_and_no_more() -> None:
    settings = settings_of(resolvers=RESOLVERS)
    resolver = PassageResolver(settings.resolvers, lookups={"kb": Texts(a="hang")})
    bare = trace_dict(1, passages=[{"id": "a"}], missing={"passages": "passages_id_only"})
    preparing = TracePreparer(settings, Counters(), resolver=resolver, seconds=0.05)
    assert prepared(preparing, bare).missing == {"passages": "resolver_timeout"}


def test_texts_that_make_a_trace_too_large_are_not_taken() -> None:
    settings = settings_of(resolvers=RESOLVERS, limits={"trace_bytes": 1024})
    resolver = PassageResolver(settings.resolvers, lookups={"kb": Texts(a="word " * 1000)})
    bare = trace_dict(1, passages=[{"id": "a"}], missing={"passages": "passages_id_only"})
    trace = prepared(TracePreparer(settings, Counters(), resolver=resolver), bare)
    assert trace.missing == {"passages": "resolver_error"}
    assert [passage.text for passage in trace.passages or ()] == [None]
