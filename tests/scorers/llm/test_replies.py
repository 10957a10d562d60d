"""Replies are untrusted: whatever comes is a completion or a failure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragmeter.scorers.llm.billing import ATTEMPT_OUTCOMES
from ragmeter.scorers.llm.dialect import ChatDialect, ServerComplaint
from ragmeter.scorers.llm.replies import ChatCompletion, FailedAttempt, read_chat_reply

from tests.scorers.judge.asking import completion, error

FIELDS = ["choices", "message", "content", "error", "detail", "loc", "param", "code", "type"]
FIELDS += ["usage", "prompt_tokens", "completion_tokens", "model", "system_fingerprint"]
FIELDS += ["refusal", "finish_reason", "text"]

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["context length", "response_format", "temperature", "content_filter"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


def checked(reply: ChatCompletion | FailedAttempt) -> None:
    if isinstance(reply, ChatCompletion):
        assert isinstance(reply.text, str)
        return
    assert reply.outcome in ATTEMPT_OUTCOMES
    assert len(reply.detail) < 100
    assert reply.detail.isprintable()
    if reply.complaint is not None:
        ChatDialect().weaker(reply.complaint, may_change_mode=True, proven=False)


@given(anything, st.sampled_from([200, 201, 301, 400, 401, 403, 404, 413, 422, 429, 500, 503, 99]))
def test_any_json_is_a_completion_or_a_failure(value: Any, status: int) -> None:
    checked(read_chat_reply(status, json.dumps(value).encode()))


@given(st.binary(), st.sampled_from([200, 400, 500]))
def test_any_bytes_are_a_completion_or_a_failure(body: bytes, status: int) -> None:
    checked(read_chat_reply(status, body))


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 200_000, b"1" * 10_000])
def test_replies_that_break_a_parser_are_failures(body: bytes) -> None:
    checked(read_chat_reply(200, body))
    checked(read_chat_reply(400, body))


def test_a_completion_is_read() -> None:
    reply = read_chat_reply(200, json.dumps(completion("text")).encode())
    assert isinstance(reply, ChatCompletion)
    assert reply.text == "text"
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (100, 10)
    assert (reply.served.model, reply.served.system_fingerprint) == ("served-1", "fp_1")


def test_a_code_that_is_no_word_is_not_repeated() -> None:
    reply = read_chat_reply(400, json.dumps(error("x", code="the user's secret\n")).encode())
    assert isinstance(reply, FailedAttempt)
    assert reply.detail == "status 400"


def test_a_complaint_is_about_what_it_names_not_about_what_it_quotes() -> None:
    named = ServerComplaint(400, frozenset({"messages"}), "", "temperature response_format")
    assert not named.about("temperature")
    unnamed = ServerComplaint(400, frozenset(), "", "temperature is wrong")
    assert unnamed.about("temperature")
    assert ServerComplaint(400, frozenset({"response_format.type"}), "", "").about(
        "response_format"
    )
    assert not ServerComplaint(400, frozenset({"seeds"}), "", "").about("seed")
