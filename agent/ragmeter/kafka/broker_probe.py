"""A check whether the brokers can be reached, which says why not.

Neither client reports why: kafka-python retries until its time is over, aiokafka only writes a log
line. Therefore `probe_brokers` opens an aiokafka connection, the lowest layer that still raises the
cause, before either of them starts.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any

from ragmeter.config.kafka import KafkaSettings
from ragmeter.core.errors import Unavailable
from ragmeter.kafka.connection import REACH_SECONDS, aiokafka_options

OTHER_PROTOCOL = "is it a listener of another protocol (kafka.security.protocol)?"
_TLS_SECONDS = 3.0  # for a listener to greet by TLS
_CLOSE_SECONDS = 0.2  # for the closing handshake of TLS
# Error codes of Kafka's protocol.
_SASL_UNKNOWN = 33
_SASL_STATE = 34
_SASL_FAILED = 58


class BrokersUnreachable(Unavailable):
    """No broker accepts a connection; the text gives the cause for each of them in one line."""


async def probe_brokers(kafka: KafkaSettings, seconds: float = REACH_SECONDS) -> dict[str, int]:
    """Connect to a broker at an address that the cluster itself advertises.

    Takes `seconds` at most, and returns the number of partitions of each topic that
    this client may see.

    Raises:
        BrokersUnreachable: No broker accepts a connection.
    """
    options = aiokafka_options(kafka) | {"client_id": kafka.group}
    options["request_timeout_ms"] = int(seconds * 1000)
    security = kafka.security
    reasons: list[str] = []
    try:
        async with asyncio.timeout(seconds):
            for server in kafka.bootstrap_servers:
                host, _, port = server.rpartition(":")
                try:
                    answer = await _read_metadata(host.strip("[]"), int(port), options)
                except _ProbeFailed as error:
                    reasons.append(str(error))
                    continue
                if security.oauth.given and not answer.brokers:
                    # aiokafka takes the refusal of a token for a welcome
                    reasons.append(f"{server}: it does not accept the token (kafka.security.oauth)")
                    continue
                reason = "it names no broker"
                for _, host, port, *_ in answer.brokers:  # some of a cluster may be down
                    try:
                        topics = (await _read_metadata(host, port, options)).topics
                    except _ProbeFailed as error:
                        reason = str(error)
                        continue
                    return {name: len(parts) for error, name, *_, parts in topics if not error}
                reasons.append(
                    f"{server} answers, but the address that it advertises (advertised.listeners)"
                    f" does not: {reason}"
                )
    except TimeoutError:
        reasons.append(f"no answer within {seconds:g} s")
    protocol = f"{security.protocol}, {security.mechanism}" if security.sasl else security.protocol
    servers = ",".join(kafka.bootstrap_servers)
    raise BrokersUnreachable(
        f"Kafka at {servers} ({protocol}): {'; '.join(dict.fromkeys(reasons))}"
    )


class _ProbeFailed(Unavailable):
    pass


async def _read_metadata(host: str, port: int, options: dict[str, Any]) -> Any:
    from aiokafka.conn import AIOKafkaConnection
    from aiokafka.errors import KafkaError
    from aiokafka.protocol.metadata import MetadataRequest

    connection = AIOKafkaConnection(host, port, **options)
    try:
        await connection.connect()
        return await connection.send(MetadataRequest(None))  # of all topics
    except (OSError, KafkaError, TimeoutError) as error:
        why = _explain(error, options)
        if why.endswith(OTHER_PROTOCOL):
            why += await _other_protocol(host, port, options["security_protocol"])
        raise _ProbeFailed(f"{host}:{port}: {why}") from None
    finally:
        closed = connection.close()
        if closed is not None:  # TLS has a closing handshake; without waiting the socket would leak
            await asyncio.wait([closed], timeout=_CLOSE_SECONDS)


async def _other_protocol(host: str, port: int, protocol: str) -> str:
    """Return which protocols a listener may have that hangs up on one."""
    if protocol == "SSL":
        return " SASL_SSL is the one with a user"
    if protocol == "SASL_SSL":
        return ""
    greeted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    greeted.check_hostname = False
    greeted.verify_mode = ssl.CERT_NONE  # nothing is sent but the greeting
    try:
        async with asyncio.timeout(_TLS_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=greeted)
    except (OSError, TimeoutError):
        return " SASL_PLAINTEXT is the one with a user" if protocol == "PLAINTEXT" else ""
    writer.close()
    with suppress(OSError, TimeoutError):  # it may want a certificate, or not say good-bye
        async with asyncio.timeout(_CLOSE_SECONDS):
            await writer.wait_closed()
    with_tls = "SSL or SASL_SSL" if protocol == "PLAINTEXT" else "SASL_SSL"
    return f" It speaks TLS: {with_tls}"


def _explain(error: Exception, options: dict[str, Any]) -> str:
    from aiokafka.errors import KafkaConnectionError

    if "sasl_oauth_token_provider" in options:
        from ragmeter.kafka.oauth import TokenUnavailable

        if isinstance(error, TokenUnavailable):
            return str(error)
        if isinstance(error, KafkaConnectionError):
            # aiokafka does not read the reason, and the broker closes the connection
            return (
                "it hangs up; it does not accept the token (kafka.security.oauth),"
                f" or {OTHER_PROTOCOL}"
            )
    text = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message} (kafka.security.ca_file)"
    if isinstance(error, ssl.SSLError):
        return f"no TLS with it: {error.reason}; does this listener have TLS (kafka.security)?"
    if isinstance(error, TimeoutError):
        return f"no answer in time; {OTHER_PROTOCOL}"
    if isinstance(error, KafkaConnectionError) and options["security_protocol"] == "SSL":
        return (
            f"it hangs up; it wants a certificate that it trusts (cert_file), or {OTHER_PROTOCOL}"
        )
    if isinstance(error, (KafkaConnectionError, ConnectionResetError)):
        return f"it hangs up; {OTHER_PROTOCOL}"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(error, OSError):
        return error.strerror or text
    return {
        _SASL_FAILED: "it refuses the token of kafka.security.oauth"
        if "sasl_oauth_token_provider" in options
        else "it refuses kafka.security.username with this password",
        _SASL_UNKNOWN: f"it does not take {options.get('sasl_mechanism')}"
        " (kafka.security.mechanism)",
        _SASL_STATE: "it asks for no password: its kafka.security.protocol is one without SASL",
    }.get(getattr(error, "errno", None) or 0, text)
