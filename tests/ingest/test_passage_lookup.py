"""Where texts are looked up: what is found, what is refused, what fails in time."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from ragmeter.config.inputs import ResolverSettings, ResolverSource
from ragmeter.ingest.passage_resolver import (
    FileLookup,
    HttpLookup,
    InvalidPassageId,
    LookupFailed,
    PassageTooLarge,
    SqliteLookup,
)

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


@pytest.mark.parametrize("name", ["a/b", "a?b=c#d", "ü n", "%2e%2e", "a&full=0", "a\"'<>", "..."])
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


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../etc/passwd", "a/../b", "a\\..\\b", "a\nb", "a\0", "x" * 513]
)
def test_an_id_that_could_mean_more_is_not_asked_for(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidPassageId):
        http(lambda request: pytest.fail("asked"), name)
    file = tmp_path / "kb.jsonl"
    file.write_text("{}")
    with pytest.raises(InvalidPassageId):
        asyncio.run(FileLookup(source(file=str(file))).fetch(name))


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_file_is_read_anew_when_it_has_changed(tmp_path: Path, form: str) -> None:
    file = tmp_path / f"kb.{form}"

    def write(text: str) -> None:
        if form == "csv":
            file.write_text(f'id,text\na,"{text}, with\nlines"\n,nobody\nb\n')
        else:
            lines = [json.dumps({"id": "a", "text": f"{text}, with\nlines"}), "{broken", "[1]", ""]
            file.write_text("\n".join([*lines, json.dumps({"id": 7, "text": "seven"})]))

    now = [0.0]

    async def test() -> None:
        lookup = FileLookup(source(file=str(file)), lambda: now[0])
        with pytest.raises(LookupFailed):
            await lookup.fetch("a")
        write("one")
        assert await lookup.fetch("a") == "one, with\nlines"
        assert await lookup.fetch("nobody") is None
        if form == "jsonl":
            assert await lookup.fetch("7") == "seven"
        write("another")
        now[0] += 10
        assert await lookup.fetch("a") == "another, with\nlines"
        await lookup.close()

    asyncio.run(test())


def database(path: Path) -> Path:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE chunks(id TEXT, text)")
        rows = [("a", "alpha"), ("b", b"bytes"), ("n", 7), ("big", "x" * 5000)]
        db.executemany("INSERT INTO chunks VALUES(?, ?)", rows)
    db.close()
    return path


def sqlite(path: Path, name: str, **fields: Any) -> str | None:
    query = {"query": "SELECT text FROM chunks WHERE id = ?"}

    async def get() -> str | None:
        lookup = SqliteLookup(source(sqlite=str(path), **{**query, **fields}))
        try:
            return await lookup.fetch(name)
        finally:
            await lookup.close()

    return asyncio.run(get())


def test_sqlite_takes_the_id_as_a_parameter_and_writes_nothing(tmp_path: Path) -> None:
    path = database(tmp_path / "kb with space?.sqlite")
    assert sqlite(path, "a") == "alpha"
    assert sqlite(path, "b") == "bytes"
    assert sqlite(path, "n") is None
    assert sqlite(path, "' OR 1=1 --") is None
    assert sqlite(path, "a'; DROP TABLE chunks; --") is None
    with pytest.raises(PassageTooLarge):
        sqlite(path, "big", max_bytes=1000)
    with pytest.raises(LookupFailed):
        sqlite(path, "a", query="SELECT text FROM nowhere WHERE id = ?")
    with pytest.raises(LookupFailed):
        sqlite(tmp_path / "none.sqlite", "a")
    assert not (tmp_path / "none.sqlite").exists()
    assert os.listdir(tmp_path) == ["kb with space?.sqlite"]


def test_a_statement_that_runs_on_is_stopped(tmp_path: Path) -> None:
    endless = "SELECT max(n) FROM (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c)"
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        sqlite(database(tmp_path / "kb"), "a", query=f"{endless} SELECT n FROM c) WHERE 1 != ?",
               timeout_seconds=0.1)  # fmt: skip
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "one of url, file and sqlite"),
        ({"url": "http://h/{id}", "file": "x"}, "one of url, file and sqlite"),
        ({"url": "http://h/x"}, "one {id} is needed"),
        ({"url": "http://{id}/x"}, "path or the query"),
        ({"url": "file:///etc/{id}"}, "http"),
        ({"sqlite": "x"}, "need each other"),
        ({"sqlite": "x", "query": "DELETE FROM t WHERE id = ?"}, "SELECT with one"),
        ({"sqlite": "x", "query": "SELECT 1"}, "SELECT with one"),
        ({"file": "x", "headers": "a: b"}, "headers are for a url"),
        ({"url": "http://h/{id}", "headers": "a: b", "headers_file": "f"}, "not both"),
        ({"url": "http://h/{id}", "headers": "a: b\nBearer x"}, "line 2 does not begin with"),
        ({"url": "http://h/{id}", "headers": "a: schlüssel"}, "line 1: the value is not printable"),
    ],
)
def test_what_is_wrong_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        source(**given)
    with pytest.raises(ValidationError, match="each name once"):
        ResolverSettings(sources=[source(file="a"), source(file="b")])
