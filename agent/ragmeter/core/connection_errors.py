"""Why a connection failed, in words without an address, which may hold a password."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator

_MAX_CAUSES = 8  # of one error, its own included


def explain_connection_error(error: BaseException) -> str:
    """Return the type of an error, and what the system or TLS says of it."""
    kind = type(error).__name__
    causes = list(_causes(error))
    for cause in causes:
        # aiohttp's error of a certificate is of this class too, but only its cause has the message
        if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_message"):
            return f"{kind}, its certificate is not accepted: {cause.verify_message}"
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return f"{kind}, it speaks no TLS ({cause.reason}): http:// or https://?"
    for cause in causes:
        if isinstance(cause, OSError) and cause.errno:
            # numbers of name resolution are negative, and have words of their own alone
            told = os.strerror(cause.errno) if cause.errno > 0 else cause.strerror
            return f"{kind}, {told}" if told else kind
    return kind


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None:
            return
        yield cause
        for name in ("os_error", "certificate_error"):  # of aiohttp's errors
            inner = getattr(cause, name, None)
            if isinstance(inner, BaseException):
                yield inner
        cause = cause.__cause__ or cause.__context__
