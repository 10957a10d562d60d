"""Who is let in, through the real listener and a real client."""

from __future__ import annotations

import base64

import pytest
from ragmeter.server.listener import SECURITY_HEADERS

from tests.server.ports import POSTS, Port, asked

TOKENS = {"token": "t" * 16, "send_token": "s" * 16, "scrape_token": "m" * 16}
GETS = [
    "/",
    "/trace/bot/t-1",
    "/v1/inspect",
    "/v1/results",
    "/metrics",
    "/metrics/detail",
    "/nothing",
]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def statuses(found: Port, **headers: str) -> dict[str, int]:
    out = {path: (await found.get(path, **headers)).status_code for path in GETS}
    return out | {path: (await found.post(path, **headers)).status_code for path in POSTS}


def test_on_loopback_nothing_is_asked_for() -> None:
    assert asked(statuses) == {path: 404 if path == "/nothing" else 200 for path in GETS + POSTS}


def test_each_token_opens_what_it_is_for_and_no_token_opens_nothing() -> None:
    async def ask(found: Port) -> list[dict[str, int]]:
        tokens = [{}, bearer("x" * 16), *(bearer(token) for token in TOKENS.values())]
        return [await statuses(found, **headers) for headers in tokens]

    none, wrong, every, send, scrape = asked(ask, **TOKENS)
    assert set(none.values()) == set(wrong.values()) == {401}, "also what is not there"
    assert set(every.values()) == {200, 404}
    sending = POSTS[:-1]
    assert [path for path, status in send.items() if status == 200] == sending
    assert [path for path, status in scrape.items() if status == 200] == [
        "/metrics",
        "/metrics/detail",
    ]


def test_a_browser_may_ask_a_person_for_the_token() -> None:
    async def ask(found: Port) -> tuple[str, int, str]:
        page, sent = await found.get("/"), await found.post("/v1/traces")
        login = base64.b64encode(f"me:{TOKENS['token']}".encode()).decode()
        again = await found.get("/", Authorization=f"Basic {login}")
        header = "WWW-Authenticate"
        return page.headers[header], again.status_code, sent.headers[header]

    assert asked(ask, **TOKENS) == ('Basic realm="ragmeter"', 200, 'Bearer realm="ragmeter"')


def test_probes_need_no_token_and_tell_strangers_nothing() -> None:
    async def ask(found: Port) -> list[tuple[int, str]]:
        answers = [
            await found.get("/healthz"),
            await found.get("/readyz"),
            await found.get("/readyz", **bearer(TOKENS["token"])),
            await found.get("/readyz", **bearer(TOKENS["scrape_token"])),
        ]
        return [(answer.status_code, answer.text) for answer in answers]

    alive, ready, known, scraper = asked(ask, **TOKENS)
    assert alive == (200, "this is /healthz")
    assert ready == scraper == (503, "no\n")
    assert known == (503, "the disk of /secret/path is full")
    assert asked(lambda found: found.get("/readyz")).text == known[1], "on loopback all is shown"


def test_what_no_token_opens_is_closed_beyond_loopback() -> None:
    remote = {"host": "0.0.0.0", "accept": ["plain"], "send_token": "s" * 16}
    found = asked(statuses, **remote)
    assert {path: found[path] for path in ("/", "/metrics", "/v1/traces")} == {
        "/": 403,
        "/metrics": 403,
        "/v1/traces": 401,
    }
    accepted = asked(statuses, **{**remote, "accept": ["plain", "open"]})
    assert (accepted["/"], accepted["/metrics"], accepted["/v1/traces"]) == (200, 200, 401)


@pytest.mark.parametrize("remote", [False, True])
def test_a_foreign_name_that_points_here_reads_nothing(remote: bool) -> None:
    """DNS rebinding: the page of another site asks us under its own name."""
    where = {"host": "0.0.0.0", "accept": ["plain", "open"]} if remote else {}

    async def ask(found: Port) -> list[dict[str, int]]:
        names = ("evil.example", "127.0.0.1.nip.io:9464", "localhost:9464", "rag.example.com")
        return [await statuses(found, Host=name) for name in names]

    evil, tricky, local, named = asked(ask, names=["rag.example.com"], **where)
    for found in (evil, tricky):
        assert {found[path] for path in GETS} == {403}
        assert found["/v1/traces"] == 200, "collectors send by any name"
        assert found["/v1/baselines/promote"] == 403
    for found in (local, named):
        assert found["/"] == 200
    with_token = asked(lambda p: p.get("/", Host="a.b", **bearer(TOKENS["token"])), **TOKENS)
    assert with_token.status_code == 200, "a page of another site has no token"


@pytest.mark.parametrize("headers", [{}, bearer(TOKENS["token"])])
def test_no_page_of_another_site_sends_anything(headers: dict[str, str]) -> None:
    given = TOKENS if headers else {}

    async def ask(found: Port) -> set[int]:
        origin = {"Origin": "http://evil.example", "Content-Type": "text/plain", **headers}
        return {(await found.post(path, **origin)).status_code for path in POSTS}

    assert asked(ask, **given) == {403}


def test_what_was_refused_is_counted_by_its_reason() -> None:
    async def ask(found: Port) -> dict[str, int]:
        await found.get("/")
        await found.get("/", **bearer("x" * 16))
        await found.post("/v1/traces", Origin="null")
        return dict(found.access.refused["metrics"])

    assert asked(ask, **TOKENS) == {"no_token": 1, "wrong_token": 1, "origin": 1}


def test_every_answer_has_the_headers_and_says_not_what_it_is_made_of() -> None:
    async def ask(found: Port) -> None:
        for headers in ({}, bearer(TOKENS["token"])):
            for path in [*GETS, "/healthz", "/readyz"]:
                answer = await found.get(path, **headers)
                assert {
                    name: answer.headers[name] for name in SECURITY_HEADERS
                } == SECURITY_HEADERS, path
                assert "Server" not in answer.headers
            for path in POSTS:
                answer = await found.post(path, **headers)
                assert {
                    name: answer.headers[name] for name in SECURITY_HEADERS
                } == SECURITY_HEADERS, path

    asked(ask, **TOKENS)


def test_a_refused_body_is_not_read() -> None:
    async def ask(found: Port) -> tuple[int, str]:
        answer = await found.send("/v1/traces", bytes(2**20), {})
        return answer.status_code, answer.headers["Connection"]

    assert asked(ask, **TOKENS) == (401, "close")
