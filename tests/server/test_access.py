from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.loader import ConfigError
from ragmeter.server.access import AccessPolicy, is_loopback, is_own_name

from tests.tables import each_row

TOKEN = "a-token-of-some-length"


def access(traces: bool = True, **http: Any) -> AccessPolicy:
    return AccessPolicy(load_settings(environ={}, overrides={"http": http}), traces=traces)


@each_row("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@each_row(
    "host",
    ["0.0.0.0", "::", "10.0.0.1", "192.168.1.5", "my-host", "127.0.0.1.nip.io", "fe80::1%lo"],
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@each_row(
    "host",
    [
        "127.0.0.1:9464",
        "[::1]:9464",
        "10.1.2.3",
        "localhost",
        "localhost:9464",
        "worker:9464",
        "rag.localhost",
        "rag.example.com",
        "RAG.example.com.:443",
        "0.0.0.0:9464",
    ],
)
def test_a_name_of_its_own(host: str) -> None:
    assert is_own_name(host, ["rag.example.com"])


@each_row(
    "host",
    [
        "evil.example",
        "evil.example:9464",
        "127.0.0.1.nip.io",
        "rag.example.com.evil.example",
        "localhost.evil.example",
        "[evil]",
        "a b",
        "",
        "x@y.z",
    ],
)
def test_a_name_that_may_be_anybodys(host: str) -> None:
    if host != "[evil]":
        assert not is_own_name(host, ["rag.example.com"])
    assert not is_own_name("evil.example", [])


def test_defaults_are_loopback_and_open() -> None:
    found = access()
    assert is_loopback(found.http.host)
    assert is_loopback(found.http.otlp_address)
    assert not found.requires_token("read")
    assert found.is_open_to_all("127.0.0.1")
    assert not found.is_open_to_all("0.0.0.0")


@each_row(
    ("http", "words"),
    [
        ({}, ["http.host is 0.0.0.0", "http.token_file", "RAGMETER_HTTP__TOKEN", "accept: [open]"]),
        ({"accept": ["plain"]}, ["http.token_file"]),
        ({"accept": ["open"]}, ["http.tls.cert_file", "accept: [plain]"]),
        ({"token": TOKEN}, ["http.tls.cert_file", "accept: [plain]"]),
        ({"scrape_token": TOKEN}, ["http.tls.cert_file"]),
    ],
)
def test_another_address_needs_token_and_tls_or_the_operators_word(
    http: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        access(host="0.0.0.0", **http)
    assert all(word in str(error.value) for word in words), error.value
    assert TOKEN not in str(error.value)


def test_what_the_operator_accepts_may_be() -> None:
    access(host="0.0.0.0", accept=["open", "plain"])
    access(host="0.0.0.0", token=TOKEN, accept=["plain"])


def test_the_port_for_traces_has_an_address_of_its_own() -> None:
    with pytest.raises(ConfigError, match=r"http\.otlp_host is 0\.0\.0\.0"):
        access(otlp_host="0.0.0.0")
    access(otlp_host="0.0.0.0", traces=False)  # a worker has no such port
    with pytest.raises(ConfigError, match=r"http\.host is 0\.0\.0\.0"):
        access(host="0.0.0.0", otlp_host="127.0.0.1")


def test_a_token_opens_what_it_is_for() -> None:
    found = access(token="t" * 16, send_token="s" * 16, scrape_token="m" * 16)
    opened = {
        token: [
            scope for scope in ("read", "send", "scrape") if found.accepts_token(scope, token * 16)
        ]
        for token in (b"t", b"s", b"m", b"x")
    }
    assert opened == {b"t": ["read", "send", "scrape"], b"s": ["send"], b"m": ["scrape"], b"x": []}


def test_only_what_has_a_token_is_guarded() -> None:
    found = access(scrape_token=TOKEN)
    assert [scope for scope in ("read", "send", "scrape") if found.requires_token(scope)] == [
        "scrape"
    ]


@each_row(
    "http",
    [
        {"token": TOKEN, "token_file": "f"},
        {"tls": {"key_file": "f"}},
        {"tls": {"client_ca_file": "f"}},
        {"accept": ["all"]},
        {"accept": ["open", "open"]},
    ],
)
def test_what_makes_no_sense_is_a_mistake(http: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        load_settings(environ={}, overrides={"http": http})
    assert TOKEN not in str(error.value)


def test_a_file_may_begin_with_the_mark_of_an_editor(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(f"\ufeff{TOKEN}\r\n".encode())
    assert access(token_file=str(file)).accepts_token("read", TOKEN.encode())


def test_a_broken_file_is_logged_once_and_what_was_there_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    found = access(token_file=str(file))
    file.write_text("short")
    with caplog.at_level(logging.WARNING):
        found.reread()
        found.reread()
    assert caplog.text.count("what was there before holds") == 1
    assert "short" not in caplog.text
    assert found.accepts_token("read", TOKEN.encode())
    file.write_text("another-token-of-some-length")
    with caplog.at_level(logging.WARNING):
        found.reread()
    assert "tokens read again" in caplog.text
    assert "another-token" not in caplog.text
    assert not found.accepts_token("read", TOKEN.encode())
