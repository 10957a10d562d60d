"""Which right a user lacks, where brokers refuse something for want of one."""

from __future__ import annotations

from collections.abc import Iterable

_WHERE = "(docs/kafka.md, Rights)"
LACKING = f"the user lacks a right that the command needs {_WHERE}"


def missing_right(error: BaseException) -> str:
    """Return what the user of the workers needs, "" where an error is none of rights."""
    # late: commands say which package is missing, and so must start without it
    from aiokafka.errors import (
        GroupAuthorizationFailedError,
        TopicAuthorizationFailedError,
        TransactionalIdAuthorizationFailed,
    )

    for kind, needed in (
        (TopicAuthorizationFailedError, "Read and Write of the topic"),
        (GroupAuthorizationFailedError, "Read of the group"),
        (TransactionalIdAuthorizationFailed, "Write and Describe of the transactional id"),
    ):
        if isinstance(error, kind):
            (names,) = error.args or ("",)
            return name_right(needed, [names] if isinstance(names, str) else names)
    return ""


def name_right(needed: str, names: Iterable[str]) -> str:
    """Return that the user needs a right, such as "Read of the group", on what has these names."""
    return f"the user needs {needed} {', '.join(sorted(names))} {_WHERE}"


def explain_failure(error: Exception) -> str:
    """Return which right is missing, or the error as it is."""
    return missing_right(error) or repr(error)
