"""Options, credentials, log levels and a reachability check for connections to the brokers.

One block of settings, `kafka.security`, as the options of both clients.

kafka-python (the commands) and aiokafka (inside Faust) get the very same TLS context, so that what
one of them accepts the other does too.

Whether the brokers can be reached and let us in, and if not, why, in one line.

Both clients keep that to their logs: kafka-python tries again until its time is over and says
"Unable to bootstrap", aiokafka says the same at once. So a connection of aiokafka, the lowest
layer that still tells, is opened before either of them starts.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ragmeter.config.kafka import KafkaSecurity, KafkaSettings

if TYPE_CHECKING:
    from faust.auth import Credentials


class KafkaSecurityError(Exception):
    """A file that `kafka.security` names is not what it must be; the text names key and file."""


def read_password(security: KafkaSecurity) -> str:
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
        raise KafkaSecurityError(f"kafka.security.password_file: {path}: one line is needed")
    return found


def tls_context(security: KafkaSecurity) -> ssl.SSLContext:
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


def _unsound(name: str, where: object, error: Exception) -> KafkaSecurityError:
    if isinstance(error, ssl.SSLError):
        why = f"no PEM file of this kind, or the key is encrypted or another's ({error.reason})"
    elif isinstance(error, OSError):
        why = error.strerror or str(error)
    else:
        why = "no UTF-8 text"
    return KafkaSecurityError(f"kafka.security.{name}: {where}: {why}")


def aiokafka_options(kafka: KafkaSettings) -> dict[str, Any]:
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
        options["sasl_plain_password"] = read_password(security)
    return options


def client_options(kafka: KafkaSettings) -> dict[str, Any]:
    """What every client of kafka-python is made with. Raises `SecurityError`."""
    return {
        "bootstrap_servers": list(kafka.bootstrap_servers),
        "client_id": kafka.client_id,
        # the default, 30 s, is long for someone who waits at a terminal
        "bootstrap_timeout_ms": int(kafka.timeout_seconds * 1000),
        **aiokafka_options(kafka),
    }


def faust_options(kafka: KafkaSettings) -> dict[str, Any]:
    """What `faust.App` needs to know of the brokers. Raises `SecurityError`."""
    return {
        "broker": [f"kafka://{server}" for server in kafka.bootstrap_servers],
        "broker_client_id": kafka.client_id,
        "broker_credentials": _credentials(kafka.security),
    }


def _credentials(security: KafkaSecurity) -> Credentials | None:
    from faust.auth import SASLCredentials, SSLCredentials

    context = tls_context(security) if security.tls else None
    if security.sasl:
        return SASLCredentials(
            username=security.username,
            password=read_password(security),
            ssl_context=context,
            mechanism=security.mechanism,
        )
    return None if context is None else SSLCredentials(context)


_REPEAT_SECONDS = 10.0  # between two equal lines of the clients: an outage writes thousands


class _RepeatFilter(logging.Filter):
    """Lets each message of a client's logger through once in a while."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, object], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("ragmeter"):
            return True
        key, now = (record.name, record.msg), time.monotonic()
        if now - self._said.get(key, -_REPEAT_SECONDS) < _REPEAT_SECONDS:
            return False
        if len(self._said) > 1000:
            self._said.clear()
        self._said[key] = now
        return True


def limit_client_logs() -> None:
    """To be called when logging is set up."""
    seldom = _RepeatFilter()
    for handler in logging.getLogger().handlers:
        handler.addFilter(seldom)
    # "agent": Faust names the logger of a subclass after its module; ours are all "ragmeter"
    for name in ("faust", "mode", "aiokafka", "agent"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # "producer buffer full": a step of more than 100 rows waits for its turn, as it should
    logging.getLogger("faust.transport.producer").setLevel(logging.ERROR)


OTHER = "is it a listener of another protocol (kafka.security.protocol)?"
_SASL_UNKNOWN, _SASL_STATE, _SASL_FAILED = 33, 34, 58  # error codes of Kafka's protocol


class BrokersUnreachable(Exception):
    """No broker lets us in; the text says of each why, in one line."""


def check_brokers(kafka: KafkaSettings) -> None:
    """Raises `Unreachable` or `SecurityError`."""
    asyncio.run(probe_brokers(kafka))


async def probe_brokers(kafka: KafkaSettings) -> dict[str, int]:
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
                    named = await _probe_broker(host.strip("[]"), int(port), options)
                    return await _any(server, named.brokers, options)
                except _ConnectionRefused as error:
                    reasons.append(str(error))
    except TimeoutError:
        reasons.append(f"no answer within {kafka.timeout_seconds:g} s")
    told = "; ".join(dict.fromkeys(reasons))
    security = kafka.security
    as_whom = f"{security.protocol}, {security.mechanism}" if security.sasl else security.protocol
    raise BrokersUnreachable(f"Kafka at {','.join(kafka.bootstrap_servers)} ({as_whom}): {told}")


class _ConnectionRefused(Exception):
    pass


class _BrokerMetadata(NamedTuple):
    brokers: list[tuple[str, int]]
    """The addresses that a broker gives of itself and its fellows."""
    topics: dict[str, int]


async def _probe_broker(host: str, port: int, options: dict[str, Any]) -> _BrokerMetadata:
    from aiokafka.conn import AIOKafkaConnection
    from aiokafka.errors import KafkaError
    from aiokafka.protocol.metadata import MetadataRequest

    connection = AIOKafkaConnection(host, port, **options)
    try:
        await connection.connect()
        answer = await connection.send(MetadataRequest(None))  # of all topics
        return _BrokerMetadata(
            [(found[1], found[2]) for found in answer.brokers],
            {name: len(parts) for error, name, *_, parts in answer.topics if not error},
        )
    except (OSError, KafkaError, TimeoutError) as error:
        raise _ConnectionRefused(f"{host}:{port}: {_why(error, options)}") from None
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
            return (await _probe_broker(host, port, options)).topics
        except _ConnectionRefused as error:
            last = str(error)
    raise _ConnectionRefused(
        f"{server} answers, but what it names (advertised.listeners) does not: {last}"
    )


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
    if number == _SASL_FAILED:
        return "it refuses kafka.security.username with this password"
    if number == _SASL_UNKNOWN:
        return f"it does not take {options['sasl_mechanism']} (kafka.security.mechanism)"
    if number == _SASL_STATE:
        return "it asks for no password: its kafka.security.protocol is one without SASL"
    return text
