"""Tokens of OAUTHBEARER from an endpoint and from files."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from pytest_httpserver import HTTPServer
from ragmeter.config.kafka import KafkaOAuth, KafkaSettings
from ragmeter.kafka import oauth
from ragmeter.kafka.connection import aiokafka_options, client_options, faust_options
from ragmeter.kafka.oauth import TokenUnavailable, read_token
from werkzeug import Request, Response

SECRET = "se/cr=et"


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Each test with endpoints that have no token yet."""
    oauth._shared_endpoint.cache_clear()
    yield
    oauth._shared_endpoint.cache_clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("ragmeter.kafka.oauth.time.monotonic", lambda: now[0])
    return now


def settings_of(server: HTTPServer, **more: Any) -> KafkaOAuth:
    block = {"token_url": server.url_for("/token?tenant=t"), "client_id": "rag:meter"}
    return KafkaOAuth.model_validate(block | {"client_secret": SECRET} | more)


def serve(server: HTTPServer, *replies: Any, status: int = 200) -> None:
    """Each reply once, in order."""
    for reply in replies:
        server.expect_ordered_request("/token", method="POST").respond_with_json(
            reply, status=status
        )


def test_the_request_is_that_of_the_standard(httpserver: HTTPServer) -> None:
    seen: list[Request] = []

    def answer(request: Request) -> Response:
        seen.append(request)
        body = request.get_data(as_text=True)
        assert parse_qs(body) == {
            "grant_type": ["client_credentials"],
            "scope": ["kafka read"],
        }
        return Response('{"access_token": "abc", "expires_in": 300}', mimetype="application/json")

    httpserver.expect_request("/token", query_string="tenant=t").respond_with_handler(answer)
    assert read_token(settings_of(httpserver, scope="kafka read")) == "abc"
    kind, _, coded = seen[0].headers["Authorization"].partition(" ")
    assert (kind, base64.b64decode(coded).decode()) == ("Basic", "rag%3Ameter:se%2Fcr%3Det")


def test_a_token_is_shared_while_it_lives(httpserver: HTTPServer, clock: list[float]) -> None:
    serve(httpserver, *({"access_token": f"t{n}", "expires_in": "100"} for n in range(3)))
    found = settings_of(httpserver)
    again = settings_of(httpserver)
    assert [read_token(each) for each in (found, again, found)] == ["t0"] * 3
    threads = [threading.Thread(target=read_token, args=(found,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock[0] += 79
    assert read_token(found) == "t0"
    clock[0] += 2  # four fifths of its life are over
    assert read_token(found) == "t1"
    clock[0] += 81
    assert read_token(again) == "t2"
    assert len(httpserver.log) == 3


def test_an_endpoint_that_fails_does_not_end_a_token_that_lives(
    httpserver: HTTPServer, clock: list[float]
) -> None:
    serve(httpserver, {"access_token": "t", "expires_in": 100})
    found = settings_of(httpserver)
    assert read_token(found) == "t"
    clock[0] += 90
    serve(httpserver, {"error": "down"}, {"error": "down"}, status=503)
    assert read_token(found) == "t"
    clock[0] += 11
    with pytest.raises(TokenUnavailable, match="status 503 down"):
        read_token(found)


@pytest.mark.parametrize(
    ("status", "reply", "why"),
    [
        (401, {"error": "invalid_client", "error_description": "who\nare you"}, "who are you"),
        (200, {"id_token": "x"}, "no access_token in its reply"),
        (200, {"access_token": "a b"}, "no access_token in its reply"),
        (200, [], "no access_token in its reply"),
        (302, {}, "status 302"),
    ],
)
def test_what_is_wrong_is_one_line_without_the_secret(
    httpserver: HTTPServer, status: int, reply: Any, why: str
) -> None:
    serve(httpserver, reply, status=status)
    with pytest.raises(TokenUnavailable) as raised:
        read_token(settings_of(httpserver))
    text = str(raised.value)
    assert why in text
    assert f"no token from {httpserver.url_for('/token')} (kafka.security.oauth)" in text
    assert "tenant" not in text
    assert SECRET not in text
    assert "\n" not in text


def test_nobody_listens_at_the_endpoint() -> None:
    block = {"token_url": "http://127.0.0.1:1/t", "client_id": "c", "client_secret": "s"}
    with pytest.raises(TokenUnavailable, match=r"no token from http://127\.0\.0\.1:1/t"):
        read_token(KafkaOAuth.model_validate(block))


def test_files_are_read_anew(httpserver: HTTPServer, tmp_path: Path, clock: list[float]) -> None:
    path = tmp_path / "file"
    tokens = KafkaOAuth(token_file=path)
    with pytest.raises(TokenUnavailable, match=r"token_file: .*No such file"):
        read_token(tokens)
    for word in ("one", "two"):
        path.write_text(f"{word}\n")
        assert read_token(tokens) == word
    path.write_text("no token\n")
    with pytest.raises(TokenUnavailable, match="no token"):
        read_token(tokens)

    serve(httpserver, {"access_token": "t"}, {"access_token": "u"})
    found = settings_of(httpserver, client_secret=None, client_secret_file=path)
    for word, token in (("first", "t"), ("second", "u")):
        path.write_text(word)
        assert read_token(found) == token
        coded = httpserver.log[-1][0].headers["Authorization"].partition(" ")[2]
        assert base64.b64decode(coded).decode().endswith(f":{word}")
        clock[0] += 61  # the endpoint does not say how long it lives


def test_every_client_is_given_a_provider(httpserver: HTTPServer) -> None:
    serve(httpserver, {"access_token": "t", "expires_in": 60})
    given = {"extensions": {"logicalCluster": "lkc-1"}}
    kafka = KafkaSettings.model_validate(
        {
            "security": {
                "protocol": "SASL_PLAINTEXT",
                "mechanism": "OAUTHBEARER",
                "oauth": settings_of(httpserver, **given),
            }
        }
    )
    faust = faust_options(kafka)["broker_credentials"].oauth_cb
    for provider in (aiokafka_options(kafka)["sasl_oauth_token_provider"], faust):
        assert asyncio.run(provider.token()) == "t"
        assert provider.extensions() == given["extensions"]
    provider = client_options(kafka)["sasl_oauth_token_provider"]
    assert provider.token() == "t"
    assert provider.extensions() == given["extensions"]
    assert len(httpserver.log) == 1
