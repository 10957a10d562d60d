"""Connections to the brokers: options of the clients, with TLS and credentials.

kafka-python (the commands) and aiokafka (inside Faust) get the same TLS context, credentials and
tokens from `kafka.security`, so that both accept the same brokers. Whatever reads a file of
`kafka.security` raises `KafkaSecurityError` if it cannot be used.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from ragmeter.config.kafka import KafkaSecurity, KafkaSettings
from ragmeter.config.loader import ConfigError

if TYPE_CHECKING:
    from faust.auth import Credentials


# Longest time for a command to reach a broker, for a worker to try a connection: a cluster that
# moves a leader takes some seconds, and someone waits at a terminal.
REACH_SECONDS = 15.0

# A member learns of a rebalance by the answer to a heartbeat, and none reads until all have learnt.
HEARTBEAT_SECONDS = 1.0
REBALANCE_SECONDS = 60.0  # within which the members of a group must have joined it again


class KafkaSecurityError(ConfigError):
    """A file that `kafka.security` names cannot be used; the text names key and file."""


def read_password(security: KafkaSecurity) -> str:
    """Return the SASL password, without the line end of a password file."""
    if security.password is not None:
        return security.password.get_secret_value()
    path = security.password_file
    if path is None:
        raise RuntimeError("the settings ask for one of them")
    try:
        password = path.read_text("utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _file_error("password_file", path, error) from None
    if not password or "\n" in password:
        raise KafkaSecurityError(f"kafka.security.password_file: {path}: one line is needed")
    return password


def tls_context(security: KafkaSecurity) -> ssl.SSLContext:
    """Build the TLS context that both clients use."""
    try:
        context = ssl.create_default_context(cafile=security.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise _file_error("ca_file", security.ca_file, error) from None
    context.check_hostname = security.check_hostname
    if security.cert_file is not None:
        key = security.key_file or security.cert_file
        for name, path in (("cert_file", security.cert_file), ("key_file", key)):
            try:
                held = path.read_bytes()  # OpenSSL's own error does not name the file
            except OSError as error:
                raise _file_error(name, path, error) from None
            if security.key_file is None and b"CERTIFICATE" in held and b"PRIVATE KEY" not in held:
                raise KafkaSecurityError(
                    f"kafka.security.key_file: none is given, and {path} holds no private key"
                )
        try:
            # an empty password: without one OpenSSL would ask at the terminal for that of a key
            context.load_cert_chain(security.cert_file, key, password="")
        except OSError as error:
            if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
                raise KafkaSecurityError(
                    f"kafka.security.key_file: {key} is the key of another certificate than"
                    f" cert_file, {security.cert_file}"
                ) from None
            raise _file_error("cert_file", f"{security.cert_file} with {key}", error) from None
    return context


def aiokafka_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Return protocol and credentials of every aiokafka client."""
    options = _shared_options(kafka.security)
    if kafka.security.oauth.given:
        from ragmeter.kafka.oauth import AiokafkaTokens

        options["sasl_oauth_token_provider"] = AiokafkaTokens(kafka.security.oauth)
    return options


def client_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the options of every kafka-python client."""
    options = _shared_options(kafka.security)
    if kafka.security.oauth.given:
        from ragmeter.kafka.oauth import KafkaPythonTokens

        options["sasl_oauth_token_provider"] = KafkaPythonTokens(kafka.security.oauth)
    return {
        "bootstrap_servers": list(kafka.bootstrap_servers),
        "client_id": kafka.group,
        # the default, 30 s, is long for someone who waits at a terminal
        "bootstrap_timeout_ms": int(REACH_SECONDS * 1000),
        **options,
    }


def faust_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the arguments of `faust.App` that concern the brokers."""
    return {
        "broker": [f"kafka://{server}" for server in kafka.bootstrap_servers],
        "broker_client_id": kafka.group,
        "broker_credentials": _faust_credentials(kafka.security),
    }


def _shared_options(security: KafkaSecurity) -> dict[str, Any]:
    """Return what aiokafka and kafka-python have under the same names."""
    options: dict[str, Any] = {"security_protocol": security.protocol}
    if security.tls:
        options["ssl_context"] = tls_context(security)
    if security.sasl:
        options["sasl_mechanism"] = security.mechanism
    if security.username is not None:
        options["sasl_plain_username"] = security.username
        options["sasl_plain_password"] = read_password(security)
    return options


def _file_error(name: str, file: object, error: Exception) -> KafkaSecurityError:
    if isinstance(error, ssl.SSLError):
        why = f"no PEM file of this kind, or the key is encrypted or another's ({error.reason})"
    elif isinstance(error, OSError):
        why = error.strerror or str(error)
    else:
        why = "no UTF-8 text"
    return KafkaSecurityError(f"kafka.security.{name}: {file}: {why}")


def _faust_credentials(security: KafkaSecurity) -> Credentials | None:
    from faust.auth import OAuthCredentials, SASLCredentials, SSLCredentials

    context = tls_context(security) if security.tls else None
    if security.oauth.given:
        from ragmeter.kafka.oauth import AiokafkaTokens

        return OAuthCredentials(oauth_cb=AiokafkaTokens(security.oauth), ssl_context=context)
    if security.sasl:
        return SASLCredentials(
            username=security.username,
            password=read_password(security),
            ssl_context=context,
            mechanism=security.mechanism,
        )
    return None if context is None else SSLCredentials(context)
