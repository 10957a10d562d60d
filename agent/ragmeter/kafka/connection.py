"""Connections to the brokers: options of the clients, their log levels, and a reachability check.

kafka-python (the commands) and aiokafka (inside Faust) get the same TLS context and credentials
from `kafka.security`, so that both accept the same brokers. Neither client reports why a broker
cannot be reached: kafka-python retries until its time is over, aiokafka only writes a log line.
Therefore `probe_brokers` opens an aiokafka connection, the lowest layer that still raises the
cause, before either of them starts. Whatever reads a file of `kafka.security` raises
`KafkaSecurityError` if it cannot be used.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ragmeter.config.kafka import KafkaSecurity, KafkaSettings
from ragmeter.config.loader import ConfigError
from ragmeter.core.errors import Unavailable

if TYPE_CHECKING:
    from faust.auth import Credentials

# Faust names the logger of a service class after its module; our subclasses use this one, so that
# their lines are treated as Faust's own.
FAUST_LOG = logging.getLogger("faust.ragmeter")

# Longest time for a command to reach a broker, for a worker to try a connection: a cluster that
# moves a leader takes some seconds, and someone waits at a terminal.
REACH_SECONDS = 15.0

OTHER_PROTOCOL = "is it a listener of another protocol (kafka.security.protocol)?"
_SASL_UNKNOWN, _SASL_STATE, _SASL_FAILED = 33, 34, 58  # error codes of Kafka's protocol
# Between two equal lines of the clients: an outage writes thousands. Each pause is twice the one
# before while they go on, so that a quarter of an hour has seven lines of a kind.
_REPEAT_SECONDS, _RAREST_SECONDS = 10.0, 300.0
_MAX_REMEMBERED_LINES = 1000
# Errors of the client that are none unless they go on for seconds: a new cluster makes its topic of
# offsets, or a broker still ends the transaction before (which it calls a lack of replicas).
_TRANSIENT = frozenset(
    {
        "Group Coordinator Request failed: %s",
        "Got error produce response on topic-partition %s, retrying. Error: %s",
    }
)


class KafkaSecurityError(ConfigError):
    """A file that `kafka.security` names cannot be used; the text names key and file."""


class BrokersUnreachable(Unavailable):
    """No broker accepts a connection; the text gives the cause for each of them in one line."""


def read_password(security: KafkaSecurity) -> str:
    """Return the SASL password, without the line end of a password file."""
    if security.password is not None:
        return security.password.get_secret_value()
    path = security.password_file
    if path is None:
        raise RuntimeError("the settings ask for one of them")
    try:
        password = path.read_text("utf-8").rstrip("\r\n")
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
                path.open("rb").close()  # OpenSSL's own error does not name the file
            except OSError as error:
                raise _file_error(name, path, error) from None
        try:
            # an empty password: without one OpenSSL would ask at the terminal for that of a key
            context.load_cert_chain(security.cert_file, key, password="")
        except OSError as error:
            raise _file_error("cert_file", f"{security.cert_file} with {key}", error) from None
    return context


def aiokafka_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Return protocol and credentials under the names that aiokafka and kafka-python share."""
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
    """Return the options of every kafka-python client."""
    return {
        "bootstrap_servers": list(kafka.bootstrap_servers),
        "client_id": kafka.group,
        # the default, 30 s, is long for someone who waits at a terminal
        "bootstrap_timeout_ms": int(REACH_SECONDS * 1000),
        **aiokafka_options(kafka),
    }


def faust_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the arguments of `faust.App` that concern the brokers."""
    return {
        "broker": [f"kafka://{server}" for server in kafka.bootstrap_servers],
        "broker_client_id": kafka.group,
        "broker_credentials": _faust_credentials(kafka.security),
    }


def limit_client_logs() -> None:
    """Make the clients log warnings only, and repeated lines rarely, once logging is set up."""
    repeat_filter = _RepeatFilter()
    for handler in logging.getLogger().handlers:
        handler.addFilter(repeat_filter)
    for name in ("faust", "mode", "aiokafka"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("asyncio").addFilter(_is_no_fenced_producer)
    # "producer buffer full": a step of more than 100 rows waits for its turn, as it should
    logging.getLogger("faust.transport.producer").setLevel(logging.ERROR)


async def probe_brokers(kafka: KafkaSettings, seconds: float = REACH_SECONDS) -> dict[str, int]:
    """Connect to a broker at an address that the cluster itself advertises.

    Takes `seconds` at most, and returns the number of partitions of each topic that
    this client may see.

    Raises:
        BrokersUnreachable: No broker accepts a connection.
    """
    options = aiokafka_options(kafka) | {"client_id": kafka.group}
    options["request_timeout_ms"] = int(seconds * 1000)
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
    security = kafka.security
    protocol = f"{security.protocol}, {security.mechanism}" if security.sasl else security.protocol
    servers = ",".join(kafka.bootstrap_servers)
    raise BrokersUnreachable(
        f"Kafka at {servers} ({protocol}): {'; '.join(dict.fromkeys(reasons))}"
    )


def _file_error(name: str, file: object, error: Exception) -> KafkaSecurityError:
    if isinstance(error, ssl.SSLError):
        why = f"no PEM file of this kind, or the key is encrypted or another's ({error.reason})"
    elif isinstance(error, OSError):
        why = error.strerror or str(error)
    else:
        why = "no UTF-8 text"
    return KafkaSecurityError(f"kafka.security.{name}: {file}: {why}")


def _faust_credentials(security: KafkaSecurity) -> Credentials | None:
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


def _is_no_fenced_producer(record: logging.LogRecord) -> bool:
    """Leave out what nobody waits for: how the producer ended that an owner had before."""
    from aiokafka.errors import ProducerFenced

    return not (record.exc_info and isinstance(record.exc_info[1], ProducerFenced))


class _RepeatFilter(logging.Filter):
    """Passes equal lines of the clients once in `_REPEAT_SECONDS`, then more and more rarely."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._logged: dict[tuple[str, object], tuple[float, float]] = {}  # when, and the next pause

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("ragmeter"):
            return True
        key = (record.name, record.msg)
        now = self._monotonic()
        at, pause = self._logged.get(key, (-math.inf, _REPEAT_SECONDS))
        if now - at < pause:
            return False
        if len(self._logged) > _MAX_REMEMBERED_LINES:
            self._logged.clear()
        lasting = now - at < 2 * pause
        self._logged[key] = now, min(2 * pause, _RAREST_SECONDS) if lasting else _REPEAT_SECONDS
        return lasting or record.msg not in _TRANSIENT


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
        raise _ProbeFailed(f"{host}:{port}: {_explain(error, options)}") from None
    finally:
        closed = connection.close()
        if closed is not None:  # TLS has a closing handshake; without waiting the socket would leak
            await asyncio.wait([closed], timeout=0.2)


def _explain(error: Exception, options: dict[str, Any]) -> str:
    from aiokafka.errors import KafkaConnectionError

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
        _SASL_FAILED: "it refuses kafka.security.username with this password",
        _SASL_UNKNOWN: f"it does not take {options.get('sasl_mechanism')}"
        " (kafka.security.mechanism)",
        _SASL_STATE: "it asks for no password: its kafka.security.protocol is one without SASL",
    }.get(getattr(error, "errno", None) or 0, text)
