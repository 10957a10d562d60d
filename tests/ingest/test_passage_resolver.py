"""Traces with the texts of their passages, or with the reason why they have none."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import pytest
from ragmeter.config.inputs import ResolverSettings
from ragmeter.ingest import passage_resolver as module
from ragmeter.ingest.passage_lookup import InvalidPassageId, LookupFailed, PassageTooLarge
from ragmeter.ingest.passage_resolver import (
    ENTRY,
    STRIKES,
    CachedText,
    PassageResolver,
    PassageTextCache,
)
from ragmeter.trace import Trace

from tests.metrics.help import trace
from tests.tables import each_row

ONLY = {"passages": "passages_id_only"}
OUTCOME = "ragmeter_resolver_requests_total"


class Texts:
    """A lookup that knows some texts; what is an exception is raised."""

    def __init__(self, **texts: Any) -> None:
        self.texts = texts
        self.asked: list[str] = []
        self.most = self.now = 0

    async def fetch(self, name: str) -> str | None:
        self.asked.append(name)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            text = self.texts.get(name)
            if text == "hang":
                await asyncio.sleep(60)
            if isinstance(text, type):
                raise text
            return text if text is None else str(text)
        finally:
            self.now -= 1

    async def close(self) -> None: ...


def settings(*names: str, **fields: Any) -> ResolverSettings:
    one = {"url": "http://h/{id}", "timeout_seconds": 60, **fields.pop("source", {})}
    sources = [{"name": name, **one} for name in names or ("kb",)]
    return ResolverSettings.model_validate({"sources": sources, **fields})


def ids(*names: str, **fields: Any) -> Trace:
    return trace(**{"passages": [{"id": name} for name in names], "missing": ONLY, **fields})


def run(resolver: PassageResolver, *traces: Trace) -> list[Trace]:
    async def go() -> list[Trace]:
        try:
            return list(await asyncio.gather(*(resolver.resolve(one) for one in traces)))
        finally:
            await resolver.close()

    return asyncio.run(go())


def outcomes(resolver: PassageResolver) -> dict[str, float]:
    counts = resolver.counts()
    assert {name for name, _ in counts} <= {OUTCOME}
    return {dict(labels)["outcome"]: number for (_, labels), number in counts.items()}


def test_texts_with_their_hash_and_who_gave_them() -> None:
    lookup = Texts(a="alpha", b="beta")
    resolver = PassageResolver(settings(), lookups={"kb": lookup})
    (one,) = run(resolver, ids("a", "b"))
    assert one.missing == {}
    first, second = one.passages or []
    assert (first.text, second.text) == ("alpha", "beta")
    mark = sha256(b"alpha").hexdigest()
    assert first.metadata == {"resolved_by": "kb", "text_sha256": mark}
    assert outcomes(resolver) == {"found": 2}
    assert resolver.counts() == {}


@each_row(
    ("texts", "reason", "outcome"),
    [
        ({}, "passages_id_only", "not_found"),
        ({"b": " "}, "passages_id_only", "not_found"),
        ({"b": InvalidPassageId}, "passages_id_only", "bad_id"),
        ({"b": LookupFailed}, "resolver_error", "error"),
        ({"b": ZeroDivisionError}, "resolver_error", "error"),
        ({"b": PassageTooLarge}, "resolver_error", "too_large"),
        ({"b": "hang"}, "resolver_timeout", "timeout"),
        ({"b": TimeoutError}, "resolver_timeout", "timeout"),
    ],
)
def test_what_fails_has_its_reason(texts: dict[str, Any], reason: str, outcome: str) -> None:
    timeout = 0.5 if "hang" in texts.values() else 60
    source = {"timeout_seconds": timeout}
    lookups = {"kb": Texts(a="alpha", **texts)}
    resolver = PassageResolver(settings(source=source), lookups=lookups)
    given = ids("a", "b", missing={**ONLY, "query": "content_hidden"})
    (one,) = run(resolver, given)
    assert one.missing == {"passages": reason, "query": "content_hidden"}
    assert [passage.text for passage in one.passages or ()] == ["alpha", None]
    assert outcomes(resolver) == {"found": 1, outcome: 1}


def test_what_is_hidden_or_whole_is_left_alone() -> None:
    lookup = Texts(a="alpha")
    resolver = PassageResolver(settings(source={"services": ["other"]}), lookups={"kb": lookup})
    other = ids("a")
    assert run(resolver, other)[0] is other
    resolver = PassageResolver(settings(), lookups={"kb": lookup})
    for reason in ("content_hidden", "passages_truncated", "redaction_failed"):
        given = ids("a", missing={"passages": reason})
        assert run(resolver, given)[0] is given
    whole, none = trace(), trace(passages=None)
    assert run(resolver, whole, none) == [whole, none]
    assert lookup.asked == []


def test_the_native_schema_needs_no_missing() -> None:
    resolver = PassageResolver(settings(), lookups={"kb": Texts(a="alpha")})
    passages = [{"id": "a", "text": ""}, {"id": "x", "text": "there"}]
    (one,) = run(resolver, trace(passages=passages))
    assert [passage.text for passage in one.passages or ()] == ["alpha", "there"]


def test_the_next_source_is_asked_and_the_worst_is_said() -> None:
    first, second = Texts(a=LookupFailed, b=None), Texts(a="alpha", b="beta")
    resolver = PassageResolver(settings("one", "two"), lookups={"one": first, "two": second})
    (one,) = run(resolver, ids("a", "b"))
    assert [p.text for p in one.passages or ()] == ["alpha", "beta"]
    assert [(p.metadata or {})["resolved_by"] for p in one.passages or ()] == ["two", "two"]
    resolver = PassageResolver(
        settings("one", "two"), lookups={"one": Texts(a=LookupFailed), "two": Texts()}
    )
    assert run(resolver, ids("a"))[0].missing == {"passages": "resolver_error"}


def test_an_id_is_asked_for_once_and_so_many_at_a_time() -> None:
    lookup = Texts(**{f"k{n}": f"text {n}" for n in range(40)})
    resolver = PassageResolver(settings(source={"concurrency": 3}), lookups={"kb": lookup})
    names = [f"k{n}" for n in range(40)]
    done = run(resolver, ids(*names), ids(*names), ids(*names))
    assert all(one.missing == {} for one in done)
    assert sorted(lookup.asked) == sorted(names)
    assert lookup.most == 3


def test_texts_and_their_absence_are_remembered_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ragmeter.ingest.passage_resolver.TEXT_SECONDS", 100)
    monkeypatch.setattr("ragmeter.ingest.passage_resolver.ABSENCE_SECONDS", 10)
    now = [0.0]
    lookup = Texts(a="alpha", c=LookupFailed)
    resolver = PassageResolver(settings(), lookups={"kb": lookup}, clock=lambda: now[0])

    async def go() -> None:
        for seconds in (0, 4, 20, 200):
            now[0] += seconds
            await resolver.resolve(ids("a", "b", "c"))

    asyncio.run(go())
    assert [lookup.asked.count(name) for name in "abc"] == [2, 3, 3]


def test_a_source_that_is_down_is_left_alone() -> None:
    now = [0.0]
    names = [f"k{n}" for n in range(60)]
    lookup = Texts(**dict.fromkeys(names, LookupFailed))
    resolver = PassageResolver(
        settings(source={"concurrency": 1}), lookups={"kb": lookup}, clock=lambda: now[0]
    )
    assert run(resolver, ids(*names))[0].missing == {"passages": "resolver_error"}
    assert len(lookup.asked) == STRIKES
    assert outcomes(resolver) == {"error": STRIKES, "resting": 60 - STRIKES}
    now[0] += module.FAILED_SECONDS
    lookup.texts["k59"] = "back"
    (one,) = run(resolver, ids("k59"))
    assert one.missing == {}


def test_passages_without_end_are_bounded() -> None:
    lookup = Texts()
    resolver = PassageResolver(settings(), lookups={"kb": lookup})
    (one,) = run(resolver, ids(*[f"k{n}" for n in range(500)]))
    assert len(lookup.asked) == module.MAX_PASSAGES
    assert one.missing == ONLY


def test_the_cache_is_bounded_in_bytes() -> None:
    now = [0.0]
    cache = PassageTextCache(10 * (ENTRY + 4 * 101), lambda: now[0])
    for n in range(100):
        cache.put(("kb", chr(97 + n % 26)), CachedText("x" * 100, "found"), 10)
        assert cache.size <= 10 * (ENTRY + 4 * 101)
    cache.put(("kb", "huge"), CachedText("x" * 10**6, "found"), 10)
    assert cache.get(("kb", "huge")) is None
    last = chr(97 + 99 % 26)
    assert cache.get(("kb", last)) is not None
    now[0] = 11
    assert cache.get(("kb", last)) is None
