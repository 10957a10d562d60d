"""One block of settings, `kafka.security`, as the options of both clients.

kafka-python (the commands) and aiokafka (inside Faust) get the very same TLS context, so that what
one of them accepts the other does too.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from agent.settings.kafka import Kafka, Security

if TYPE_CHECKING:
    from faust.auth import Credentials

__all__ = [
    "SecurityError",
    "aiokafka_options",
    "client_options",
    "faust_options",
    "password_of",
    "tls_context",
]


class SecurityError(Exception):
    """A file that `kafka.security` names is not what it must be; the text names key and file."""


def password_of(security: Security) -> str:
    """Without the line's end, which a file made by an editor has. Raises `SecurityError`."""
    if security.password is not None:
        return security.password.get_secret_value()
    path = security.password_file
    assert path is not None, "the settings ask for one of them"
    try:
        found = path.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _unsound("password_file", path, error) from None
    if not found or "\n" in found:
        raise SecurityError(f"kafka.security.password_file: {path}: one line is needed")
    return found


def tls_context(security: Security) -> ssl.SSLContext:
    """Raises `SecurityError`."""
    try:
        context = ssl.create_default_context(cafile=security.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise _unsound("ca_file", security.ca_file, error) from None
    context.check_hostname = security.check_hostname
    if security.cert_file is not None:
        key = security.key_file or security.cert_file
        for name, path in (("cert_file", security.cert_file), ("key_file", key)):
            try:
                path.open("rb").close()  # OpenSSL's own error does not say which one it is
            except OSError as error:
                raise _unsound(name, path, error) from None
        try:
            # an empty password: without one OpenSSL would ask at the terminal for that of a key
            context.load_cert_chain(security.cert_file, key, password="")
        except OSError as error:
            raise _unsound("cert_file", f"{security.cert_file} with {key}", error) from None
    return context


def _unsound(name: str, where: object, error: Exception) -> SecurityError:
    if isinstance(error, ssl.SSLError):
        why = f"no PEM file of this kind, or the key is encrypted or another's ({error.reason})"
    elif isinstance(error, OSError):
        why = error.strerror or str(error)
    else:
        why = "no UTF-8 text"
    return SecurityError(f"kafka.security.{name}: {where}: {why}")


def aiokafka_options(kafka: Kafka) -> dict[str, Any]:
    """The protocol and its credentials, as aiokafka and kafka-python both call them.

    Raises `SecurityError`.
    """
    security = kafka.security
    options: dict[str, Any] = {"security_protocol": security.protocol}
    if security.tls:
        options["ssl_context"] = tls_context(security)
    if security.sasl:
        options["sasl_mechanism"] = security.mechanism
        options["sasl_plain_username"] = security.username
        options["sasl_plain_password"] = password_of(security)
    return options


def client_options(kafka: Kafka) -> dict[str, Any]:
    """What every client of kafka-python is made with. Raises `SecurityError`."""
    return {
        "bootstrap_servers": list(kafka.bootstrap_servers),
        "client_id": kafka.client_id,
        # the default, 30 s, is long for someone who waits at a terminal
        "bootstrap_timeout_ms": int(kafka.timeout_seconds * 1000),
        **aiokafka_options(kafka),
    }


def faust_options(kafka: Kafka) -> dict[str, Any]:
    """What `faust.App` needs to know of the brokers. Raises `SecurityError`."""
    return {
        "broker": [f"kafka://{server}" for server in kafka.bootstrap_servers],
        "broker_client_id": kafka.client_id,
        "broker_credentials": _credentials(kafka.security),
    }


def _credentials(security: Security) -> Credentials | None:
    from faust.auth import SASLCredentials, SSLCredentials

    context = tls_context(security) if security.tls else None
    if security.sasl:
        return SASLCredentials(
            username=security.username,
            password=password_of(security),
            ssl_context=context,
            mechanism=security.mechanism,
        )
    return None if context is None else SSLCredentials(context)
