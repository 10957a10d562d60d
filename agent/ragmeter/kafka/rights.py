"""Which right a user lacks, where brokers refuse something for want of one."""

from __future__ import annotations

from aiokafka.errors import (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

_NEEDED = (
    (TopicAuthorizationFailedError, "Read and Write of the topic"),
    (GroupAuthorizationFailedError, "Read of the group"),
    (TransactionalIdAuthorizationFailed, "Write and Describe of the transactional id"),
)


def missing_right(error: BaseException) -> str:
    """Return what the user of the workers needs, "" where an error is none of rights."""
    for kind, needed in _NEEDED:
        if isinstance(error, kind):
            (names,) = error.args or ("",)
            named = names if isinstance(names, str) else ", ".join(sorted(names))
            return f"the user needs {needed} {named} (docs/kafka.md, Rights)"
    return ""
