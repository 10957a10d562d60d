"""Dead letters: as the message came, or only where it lies."""

from __future__ import annotations

from typing import Any

import pytest
from ragmeter.app.parts import AgentSettings
from ragmeter.core.counters import Counters
from ragmeter.ingest.native import DecodeFailure
from ragmeter.kafka.owners import OutRecord
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer, without_body

from tests.kafka.messages import message
from tests.tables import each_row


def bury(value: bytes, **privacy: Any) -> OutRecord:
    settings = AgentSettings.model_validate({"privacy": privacy})
    counters = Counters()
    dead = DeadLetterTopic("rag.dead", TracePreparer(settings, counters), counters)
    letter = dead.of_message(
        message(value, 17, key=None), DecodeFailure.of_whole("not_json", "no", value)
    )
    assert counters.get("ragmeter_dead_letters_total", (("reason", "not_json"),)) == 1
    return letter


def test_a_letter_goes_as_it_came() -> None:
    letter = bury(b"{")
    assert (letter.topic, letter.key, letter.value) == ("rag.dead", None, b"{")
    assert letter.headers["reason"] == b"not_json"
    assert "truncated" not in letter.headers


def test_a_message_over_the_limit_is_buried_without_its_body() -> None:
    limit = AgentSettings().limits.trace_bytes
    assert bury(b"w" * limit).value == b"w" * limit
    letter = bury(b"w" * (limit + 1))
    assert (letter.value, letter.headers["truncated"]) == (b"", b"1")


def test_of_a_letter_that_is_too_large_its_place_goes() -> None:
    letter = without_body(bury(b"large"))
    assert letter.value == b""
    assert letter.headers["truncated"] == b"1"
    assert (letter.headers["topic"], letter.headers["partition"], letter.headers["offset"]) == (
        b"rag.traces",
        b"3",
        b"17",
    )


@pytest.mark.parametrize("privacy", [{"content": "none"}, {"redact": ["email"]}])
def test_of_a_letter_that_may_not_be_kept_its_place_goes(privacy: dict[str, Any]) -> None:
    letter = bury(b"{", **privacy)
    assert letter.value == b""
    assert letter.headers["truncated"] == b"1"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"\0\0\0\0\x2a" + b'{"trace_id": "a"}', "JSON"),
        (b"\0\0\0\0\x2a" + b"\x02\x10trace-1", "Avro or Protobuf"),
    ],
)
@pytest.mark.parametrize("privacy", [{}, {"content": "none"}])
def test_the_framing_of_a_schema_registry_is_named(
    value: bytes, kind: str, privacy: dict[str, Any]
) -> None:
    letter = bury(value, **privacy)
    error = letter.headers["error"].decode()
    assert f"looks like Confluent schema-registry framing, schema id 42, {kind}" in error
    assert "without the registry's serializer" in error
    assert letter.value == (b"" if privacy else value)


@each_row("value", [b"", b"\0", b"\0\0\0\0\x2a", b"{", b"\n\x05oops"])
def test_nothing_else_is_taken_for_it(value: bytes) -> None:
    assert b"framing" not in bury(value).headers["error"]
