from __future__ import annotations

from typing import Any

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.kafka import TOPIC_KINDS
from ragmeter.config.loader import ConfigError, dump_settings
from ragmeter.config.settings import Settings

from tests.tables import each_row

WORDS = {"username": "u", "password": "secret-word"}
OAUTH = {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}
TOKEN = {"token_file": "f"}


def kafka(tree: dict[str, Any] | None = None, **environ: str) -> Settings:
    return load_settings(environ=environ, overrides={"kafka": tree or {}})


def test_the_prefix_names_every_topic_that_is_not_named() -> None:
    topics = kafka({"topics": {"prefix": "team-a.", "feedback": "said"}}).kafka.topics
    assert [getattr(topics, kind) for kind in TOPIC_KINDS] == [
        "team-a.traces",
        "said",
        "team-a.spans",
        "team-a.scores",
        "team-a.dead",
        "team-a.control",
    ]
    topics = kafka(RAGMETER_KAFKA__TOPICS__PREFIX="x-").kafka.topics
    assert topics.traces == "x-traces"
    assert kafka().kafka.topics.traces == "rag.traces"


def test_everything_can_come_from_the_environment() -> None:
    found = kafka(
        RAGMETER_KAFKA__BOOTSTRAP_SERVERS="a:9092, [::1]:9093",
        RAGMETER_KAFKA__SECURITY__PROTOCOL="SASL_PLAINTEXT",
        RAGMETER_KAFKA__SECURITY__USERNAME="u",
        RAGMETER_KAFKA__SECURITY__PASSWORD="secret-word",
    )
    assert found.kafka.bootstrap_servers == ["a:9092", "[::1]:9093"]
    assert found.kafka.security.password is not None
    assert found.kafka.security.password.get_secret_value() == "secret-word"
    assert "secret-word" not in dump_settings(found) + repr(found)


def test_the_client_of_a_token_endpoint_can_come_from_the_environment() -> None:
    found = kafka(
        RAGMETER_KAFKA__SECURITY__PROTOCOL="SASL_SSL",
        RAGMETER_KAFKA__SECURITY__MECHANISM="OAUTHBEARER",
        RAGMETER_KAFKA__SECURITY__OAUTH__TOKEN_URL="https://login.example/token",
        RAGMETER_KAFKA__SECURITY__OAUTH__CLIENT_ID="c",
        RAGMETER_KAFKA__SECURITY__OAUTH__CLIENT_SECRET="secret-word",
        RAGMETER_KAFKA__SECURITY__OAUTH__EXTENSIONS='{"logicalCluster": "lkc-1"}',
    )
    oauth = found.kafka.security.oauth
    assert oauth.extensions == {"logicalCluster": "lkc-1"}
    assert "secret-word" not in dump_settings(found) + repr(found)


@each_row(
    ("tree", "words"),
    [
        ({"bootstrap_servers": ["kafka://a:1"]}, ["kafka.bootstrap_servers", "host:port"]),
        ({"bootstrap_servers": ["a"]}, ["kafka.bootstrap_servers", "host:port"]),
        ({"bootstrap_servers": ["a:70000"]}, ["kafka.bootstrap_servers", "host:port"]),
        ({"bootstrap_servers": []}, ["kafka.bootstrap_servers"]),
        ({"topics": {"traces": "a b"}}, ["kafka.topics.traces", "letters"]),
        ({"topics": {"traces": "rag.dead"}}, ["kafka.topics", "six different"]),
        ({"topics": {"prefix": "ü"}}, ["kafka.topics.prefix"]),
        ({"security": {"protocol": "TLS"}}, ["kafka.security.protocol", "'SASL_SSL'"]),
        ({"security": {"protocol": "SASL_SSL"}}, ["kafka.security", "needs username"]),
        ({"security": WORDS}, ["PLAINTEXT has no username", "SASL_PLAINTEXT or SASL_SSL"]),
        (
            {"security": {**WORDS, "protocol": "SASL_SSL", "password_file": "f"}},
            ["either password or password_file"],
        ),
        ({"security": {**WORDS, "protocol": "SSL"}}, ["SSL has no username", "is SASL_SSL meant"]),
        ({"security": {"ca_file": "f"}}, ["PLAINTEXT has no ca_file", "is SSL or SASL_SSL meant"]),
        ({"security": {"protocol": "SSL", "key_file": "f"}}, ["key_file needs cert_file"]),
        (
            {"security": {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", **WORDS}},
            ["OAUTHBEARER needs oauth"],
        ),
        ({"security": {"protocol": "SASL_SSL", "oauth": TOKEN}}, ["is OAUTHBEARER meant"]),
        ({"security": {"protocol": "SSL", "oauth": TOKEN}}, ["SSL has no oauth"]),
        ({"security": OAUTH | {"oauth": {}}}, ["needs oauth.token_url or oauth.token_file"]),
        ({"security": OAUTH | {"oauth": {"token_url": "login"}}}, ["kafka.security.oauth", "http"]),
        (
            {"security": OAUTH | {"oauth": {"token_url": "http://a", "client_id": "c"}}},
            ["kafka.security.oauth", "client_secret or client_secret_file"],
        ),
        (
            {"security": OAUTH | {"oauth": TOKEN | {"client_secret": "secret-word"}}},
            ["client_secret is for token_url"],
        ),
        (
            {"security": OAUTH | {"oauth": TOKEN | {"extensions": {"auth": "x"}}}},
            ["kafka.security.oauth.extensions", "another one than auth"],
        ),
        ({"security": {"password": 73_519}}, ["kafka.security.password", "what is given"]),
    ],
)
def test_a_mistake_names_the_key_and_shows_no_secret(
    tree: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as raised:
        kafka(tree)
    text = str(raised.value)
    assert all(word in text for word in words), text
    assert "secret-word" not in text
    assert "73519" not in text
    assert "\n" not in text
