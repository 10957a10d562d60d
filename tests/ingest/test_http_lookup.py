"""Where texts are looked up: what is found, what is refused, what fails in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from ragmeter.config.inputs import ResolverSettings, ResolverSource
from ragmeter.ingest.http_lookup import HttpLookup
from ragmeter.ingest.passage_lookup import InvalidPassageId, LookupFailed, PassageTooLarge

from tests.tables import each_row

Handler = Callable[[httpx.Request], httpx.Response]


def source(**fields: Any) -> ResolverSource:
    return ResolverSource.model_validate({"name": "kb", **fields})


def http(handler: Handler, name: str = "a", **fields: Any) -> str | None:
    one = source(**{"url": "http://kb.example/v1/docs/{id}?full=1", **fields})

    async def get() -> str | None:
        lookup = HttpLookup(one, httpx.MockTransport(handler))
        try:
            return await lookup.fetch(name)
        finally:
            await lookup.close()

    return asyncio.run(get())


def test_plain_text_and_json() -> None:
    assert http(lambda request: httpx.Response(200, text="hello")) == "hello"
    assert http(lambda request: httpx.Response(200, json={"text": "hello"})) == "hello"
    nested = {"doc": {"body": "deep"}}
    reply = httpx.Response(200, json=nested)
    assert http(lambda request: reply, text_field="doc.body") == "deep"
    assert http(lambda request: httpx.Response(200, json={"other": 1})) is None
    assert http(lambda request: httpx.Response(404)) is None


@each_row("name", ["a/b", "a?b=c#d", "ü n", "%2e%2e", "a&full=0", "a\"'<>", "..."])
def test_an_id_stays_one_segment(name: str) -> None:
    seen: list[httpx.URL] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.url)
        return httpx.Response(200, text="x")

    http(handler, name)
    (url,) = seen
    assert url.raw_path.count(b"/") == 3
    assert url.raw_path.endswith(b"?full=1")
    assert url.host == "kb.example"
    assert httpx.URL(f"http://h/{url.raw_path.split(b'/')[3].decode()}").path == f"/{name}"


@each_row(
    "name", ["", ".", "..", "../../etc/passwd", "a/../b", "a\\..\\b", "a\nb", "a\0", "x" * 513]
)
def test_an_id_that_could_mean_more_is_not_asked_for(name: str) -> None:
    with pytest.raises(InvalidPassageId):
        http(lambda request: pytest.fail("asked"), name)


@each_row(
    ("status", "calls"), [(500, 2), (503, 2), (429, 2), (401, 2), (302, 1), (204, 1), (418, 1)]
)
def test_what_may_pass_is_tried_again_once(status: int, calls: int) -> None:
    seen = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status, headers={"location": "http://evil.example/"})

    with pytest.raises(LookupFailed):
        http(handler)
    assert len(seen) == calls


def test_a_body_is_bounded_while_it_is_read() -> None:
    given = 0

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> Any:
            nonlocal given
            while True:
                given += 1
                yield b"x" * 1000

    with pytest.raises(PassageTooLarge):
        http(lambda request: httpx.Response(200, stream=Endless()), max_bytes=10_000)
    assert given < 20


@pytest.mark.parametrize("body", [b"\xff\xfe", b"{", b"[" * 100_000])
def test_what_cannot_be_read_is_a_failure(body: bytes) -> None:
    reply = httpx.Response(200, content=body, headers={"content-type": "application/json"})
    with pytest.raises(LookupFailed):
        http(lambda request: reply)


def test_headers_come_from_the_settings_or_a_file_read_anew_when_refused(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer old\nX-Team: a:b\n")
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        assert request.headers["x-team"] == "a:b"
        if seen[-1] == "Bearer new":
            return httpx.Response(200, text="yes")
        file.write_text("Authorization: Bearer new\nX-Team: a:b\n")
        return httpx.Response(401)

    assert http(handler, headers_file=str(file)) == "yes"
    assert seen == ["Bearer old", "Bearer new"]
    one = source(url="http://h/{id}", headers="Authorization: hush-7")
    assert "hush-7" not in repr(one)


@pytest.mark.parametrize("content", [None, "Bearer x", "a: schlüssel", "x: y" * 100_000])
def test_without_its_headers_nothing_is_asked(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "headers"
    if content is not None:
        file.write_text(content)
    asked: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, text="yes")

    with pytest.raises(LookupFailed):
        http(handler, headers_file=str(file))
    assert asked == []


@each_row(
    ("given", "words"),
    [
        ({}, "Field required"),
        ({"file": "x"}, "Extra inputs are not permitted"),
        ({"url": "http://h/x"}, "one {id} is needed"),
        ({"url": "http://{id}/x"}, "path or the query"),
        ({"url": "file:///etc/{id}"}, "http"),
        ({"url": "http://h/{id}", "headers": "a: b", "headers_file": "f"}, "not both"),
        ({"url": "http://h/{id}", "headers": "a: b\nBearer x"}, "line 2 does not begin with"),
        ({"url": "http://h/{id}", "headers": "a: schlüssel"}, "line 1: the value is not printable"),
    ],
)
def test_what_is_wrong_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        source(**given)
    with pytest.raises(ValidationError, match="each name once"):
        ResolverSettings(sources=[source(url="http://a/{id}"), source(url="http://b/{id}")])
