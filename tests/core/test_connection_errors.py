"""An error says why a connection failed, and never where it went."""

from __future__ import annotations

import errno
import socket
import ssl

import aiohttp
from ragmeter.core.connection_errors import explain_connection_error

from tests.tables import each_row


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def not_verified() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


def no_tls() -> ssl.SSLError:
    error = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    error.reason = "WRONG_VERSION_NUMBER"
    return error


KEY = aiohttp.client_reqrep.ConnectionKey("secret.example", 80, False, True, None, None, None)
REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 9)")
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@each_row(
    ("error", "notified"),
    [
        (REFUSED, "ConnectionRefusedError, Connection refused"),
        (caused(RuntimeError("x"), REFUSED), "RuntimeError, Connection refused"),
        (
            aiohttp.ClientConnectorDNSError(KEY, UNKNOWN),
            "ClientConnectorDNSError, Name or service not known",
        ),
        (
            caused(ConnectionError(), not_verified()),
            "ConnectionError, its certificate is not accepted: self-signed certificate",
        ),
        (
            aiohttp.ClientConnectorCertificateError(KEY, not_verified()),
            "ClientConnectorCertificateError, its certificate is not accepted: self-signed",
        ),
        (
            caused(ConnectionError(), no_tls()),
            "ConnectionError, it speaks no TLS (WRONG_VERSION_NUMBER)",
        ),
        (ValueError("http://user:password@host"), "ValueError"),
    ],
)
def test_the_cause_is_told_without_an_address(error: Exception, notified: str) -> None:
    words = explain_connection_error(error)
    assert words.startswith(notified)
    assert "secret" not in words
    assert "password" not in words
    assert "10.0.0.1" not in words


def test_causes_in_a_circle_end() -> None:
    first, second = ValueError(), TypeError()
    first.__cause__, second.__cause__ = second, first
    assert explain_connection_error(first) == "ValueError"
