"""Whether the brokers can be reached and let us in, and if not, why, in one line.

Both clients keep that to their logs: kafka-python tries again until its time is over and says
"Unable to bootstrap", aiokafka says the same at once. So a connection of aiokafka, the lowest
layer that still tells, is opened before either of them starts.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, NamedTuple

from agent.kafka.security import aiokafka_options
from agent.settings.kafka import Kafka

__all__ = ["Unreachable", "check", "reach"]

OTHER = "is it a listener of another protocol (kafka.security.protocol)?"
SASL_UNKNOWN, SASL_STATE, SASL_FAILED = 33, 34, 58  # error codes of Kafka's protocol


class Unreachable(Exception):
    """No broker lets us in; the text says of each why, in one line."""


def check(kafka: Kafka) -> None:
    """Raises `Unreachable` or `SecurityError`."""
    asyncio.run(reach(kafka))


async def reach(kafka: Kafka) -> dict[str, int]:
    """Returns when a broker, called as the cluster itself names it, has let us in: how many
    partitions each topic has that we may see.

    Takes `kafka.timeout_seconds` at most. Raises `Unreachable` or `SecurityError`.
    """
    options = aiokafka_options(kafka) | {"client_id": kafka.client_id}
    options["request_timeout_ms"] = int(kafka.timeout_seconds * 1000)
    reasons: list[str] = []
    try:
        async with asyncio.timeout(kafka.timeout_seconds):
            for server in kafka.bootstrap_servers:
                host, _, port = server.rpartition(":")
                try:
                    named = await _ask(host.strip("[]"), int(port), options)
                    return await _any(server, named.brokers, options)
                except _Refused as error:
                    reasons.append(str(error))
    except TimeoutError:
        reasons.append(f"no answer within {kafka.timeout_seconds:g} s")
    told = "; ".join(dict.fromkeys(reasons))
    security = kafka.security
    as_whom = f"{security.protocol}, {security.mechanism}" if security.sasl else security.protocol
    raise Unreachable(f"Kafka at {','.join(kafka.bootstrap_servers)} ({as_whom}): {told}")


class _Refused(Exception):
    pass


class _Told(NamedTuple):
    brokers: list[tuple[str, int]]
    """The addresses that a broker gives of itself and its fellows."""
    topics: dict[str, int]


async def _ask(host: str, port: int, options: dict[str, Any]) -> _Told:
    from aiokafka.conn import AIOKafkaConnection
    from aiokafka.errors import KafkaError
    from aiokafka.protocol.metadata import MetadataRequest

    connection = AIOKafkaConnection(host, port, **options)
    try:
        await connection.connect()
        answer = await connection.send(MetadataRequest(None))  # of all topics
        return _Told(
            [(found[1], found[2]) for found in answer.brokers],
            {name: len(parts) for error, name, *_, parts in answer.topics if not error},
        )
    except (OSError, KafkaError, TimeoutError) as error:
        raise _Refused(f"{host}:{port}: {_why(error, options)}") from None
    finally:
        closed = connection.close()
        if closed is not None:  # TLS says good-bye first; without waiting the socket would leak
            await asyncio.wait([closed], timeout=0.2)


async def _any(
    server: str, named: list[tuple[str, int]], options: dict[str, Any]
) -> dict[str, int]:
    """One of the addresses is enough: of a cluster some brokers may be down."""
    last = "it names no broker"
    for host, port in named:
        try:
            return (await _ask(host, port, options)).topics
        except _Refused as error:
            last = str(error)
    raise _Refused(f"{server} answers, but what it names (advertised.listeners) does not: {last}")


def _why(error: Exception, options: dict[str, Any]) -> str:
    from aiokafka.errors import KafkaConnectionError

    text = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
    number = getattr(error, "errno", None)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message} (kafka.security.ca_file)"
    if isinstance(error, ssl.SSLError):
        return f"no TLS with it: {error.reason}; does this listener have TLS (kafka.security)?"
    if isinstance(error, TimeoutError):
        return f"no answer in time; {OTHER}"
    if isinstance(error, KafkaConnectionError):
        if options["security_protocol"] == "SSL":
            return f"it hangs up; it wants a certificate that it trusts (cert_file), or {OTHER}"
        return f"it hangs up; {OTHER}"
    if isinstance(error, ConnectionResetError):
        return f"it hangs up; {OTHER}"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(error, OSError):
        return error.strerror or text
    if number == SASL_FAILED:
        return "it refuses kafka.security.username with this password"
    if number == SASL_UNKNOWN:
        return f"it does not take {options['sasl_mechanism']} (kafka.security.mechanism)"
    if number == SASL_STATE:
        return "it asks for no password: its kafka.security.protocol is one without SASL"
    return text
