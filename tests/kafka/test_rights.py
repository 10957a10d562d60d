"""The log names a right that is missing; test_worker_rights has a real authorizer."""

from __future__ import annotations

from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
from ragmeter.kafka.rights import explain_failure, missing_right

from tests.tables import each_row


@each_row(
    ("error", "notified"),
    [
        (TopicAuthorizationFailedError("a"), "Read and Write of the topic a"),
        (TopicAuthorizationFailedError({"b", "a"}), "Read and Write of the topic a, b"),
        (TopicAuthorizationFailedError(), "Read and Write of the topic"),
        (GroupAuthorizationFailedError("g"), "Read of the group g"),
        (TransactionalIdAuthorizationFailed("t"), "Write and Describe of the transactional id t"),
    ],
)
def test_the_right_is_named(error: Exception, notified: str) -> None:
    assert notified in missing_right(error)


def test_other_errors_are_none_of_rights() -> None:
    assert missing_right(KafkaConnectionError("away")) == ""


def test_a_failure_is_told_in_words_where_there_are_some() -> None:
    assert "the user needs Read of the group g" in explain_failure(
        GroupAuthorizationFailedError("g")
    )
    assert explain_failure(OSError("away")) == "OSError('away')"
