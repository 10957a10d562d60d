"""A real Apache Kafka (KRaft, loopback) with data of the test's own: one node, or three.

The jars are fetched once, with Maven, into the project's `.cache`; `python -m tests.kafka_server`
does it ahead of the tests, which are bound in time.
"""

from __future__ import annotations

import base64
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.kafka_security import add_user, make_certificates, security_properties
from tests.ports import free_port
from tests.real import require, unavailable
from tests.waiting import PATIENCE

__all__ = ["KafkaNode", "KafkaServer", "fetch", "kafka_server"]

ROOT = Path(__file__).parents[1]
# 3.9 is the last line whose broker runs on Java 11; 4.1.1 works too. The name has no prefix of
# ours, since workers would refuse a setting that they do not know.
VERSION = os.environ.get("TEST_KAFKA_VERSION", "3.9.1")
COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_SECONDS = 600  # 45 MB; 22 s on a good line
STOP_SECONDS = 30

PROPERTIES = """
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners={listeners}
advertised.listeners={advertised}
listener.security.protocol.map={protocols}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
default.replication.factor={copies}
min.insync.replicas={in_sync}
offsets.topic.num.partitions=4
offsets.topic.replication.factor={copies}
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
# a killed node is let in again only when its session is over: 17 s of start by default, 7 so
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
num.network.threads=2
num.io.threads=2
background.threads=2
log.cleaner.threads=1
# the default, 128 MB, does not fit the heap
log.cleaner.dedupe.buffer.size=16777216
# so that tests of compaction see it: a segment in use is never compacted
log.cleaner.backoff.ms=1000
log.segment.bytes=67108864
"""
LOGGING = """
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.kafka.server.KafkaRaftServer=INFO
"""
STARTED = b"Kafka Server started"


def fetch() -> Path:
    """The folder of the jars, filled by Maven if it is not there.

    Skips the test where that cannot be, and fails it where CI=true.
    """
    cache = ROOT / ".cache"
    jars = cache / f"kafka-{VERSION}"
    if jars.is_dir():
        return jars
    maven = require("mvn")
    cache.mkdir(exist_ok=True)
    # One of several test processes fetches, the others wait for it.
    with (cache / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if jars.is_dir():
            return jars
        partial = cache / f"kafka-{VERSION}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        command = [
            maven,
            "-q",
            "-B",
            "-f",
            str(ROOT / "tests/kafka/pom.xml"),
            COPY_JARS,
            f"-Dkafka.version={VERSION}",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={partial}",
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=FETCH_SECONDS)
        except subprocess.TimeoutExpired:
            unavailable(f"Maven did not fetch Kafka {VERSION} within {FETCH_SECONDS} s")
        if done.returncode:
            notified = (done.stdout + done.stderr).decode(errors="replace").strip()
            unavailable(f"Maven could not fetch Kafka {VERSION}: {notified[-600:]}")
        partial.rename(jars)
    return jars


def _kafka_uuid() -> str:
    """In Kafka's writing: 22 characters of which the first may not be "-"."""
    return "R" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


class KafkaNode:
    """One broker (and controller) process; its data and ports stay over stops and starts."""

    def __init__(self, folder: Path, command: list[str], ports: dict[str, int]) -> None:
        self.folder = folder
        self.ports = ports  # by listener: PLAINTEXT, CONTROLLER, and SASL, SSL, SASL_SSL if secure
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def format(self, cluster: str) -> None:
        """Make the data folder; before the first start.

        What Kafka's own tool would write for a fixed quorum, without starting a JVM for it.
        """
        lines = {"version": 1, "cluster.id": cluster, "directory.id": _kafka_uuid()}
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        data = self.folder / "data"
        data.mkdir()
        (data / "meta.properties").write_text(f"{text}node.id={self.folder.name[-1]}\n")

    def begin(self) -> None:
        """Start the process without waiting for it to serve."""
        assert self.pid is None, "runs already"
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command, "kafka.Kafka", str(self.folder / "server.properties")],
                stdout=log,
                stderr=log,
            )

    def wait(self) -> None:
        """Until it serves."""
        end = time.monotonic() + PATIENCE
        while STARTED not in (reported := (self.folder / "log").read_bytes()):
            ended = self.pid is None
            if ended or time.monotonic() > end:
                what = "ended" if ended else f"not up within {PATIENCE:.0f} s"
                raise RuntimeError(f"Kafka {what}: {reported.decode(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def start(self) -> None:
        self.begin()
        self.wait()

    def stop(self) -> None:
        """SIGTERM: it hands its leadership over and writes its files first."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:  # waits for a quorum that is gone
                self.kill()

    def kill(self) -> None:
        """SIGKILL. What it acknowledged is in the kernel's cache, and so survives."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class KafkaServer:
    """A running cluster. `bootstrap` and its like are `host:port` lists, as clients take them."""

    def __init__(self, folder: Path, nodes: list[KafkaNode]) -> None:
        self.folder = folder  # with ca.pem, client.pem, client.key if secure
        self.nodes = nodes

    def _addresses(self, listener: str) -> str:
        return ",".join(f"127.0.0.1:{node.ports[listener]}" for node in self.nodes)

    @property
    def bootstrap(self) -> str:
        return self._addresses("PLAINTEXT")

    @property
    def sasl(self) -> str:
        """PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 with USER and PASSWORD, no TLS."""
        return self._addresses("SASL")

    @property
    def ssl(self) -> str:
        """TLS; the client must show a certificate that ca.pem has signed."""
        return self._addresses("SSL")

    @property
    def sasl_ssl(self) -> str:
        """The mechanisms of `sasl` over TLS, without a client certificate."""
        return self._addresses("SASL_SSL")

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def start(self) -> None:
        for node in self.nodes:
            node.begin()
        for node in self.nodes:
            node.wait()

    def restart(self, *, kill: bool = False) -> None:
        """All nodes down and up again, with their data."""
        for node in self.nodes:
            if kill:
                node.kill()
        self.stop()
        self.start()


def _properties(folder: Path, number: int, ports: list[dict[str, int]], secure: bool) -> str:
    own = ports[number - 1]
    count = len(ports)
    protocols = {"SASL": "SASL_PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    notified = [f"{name}://127.0.0.1:{port}" for name, port in own.items()]
    text = PROPERTIES.format(
        number=number,
        voters=",".join(f"{n}@127.0.0.1:{its['CONTROLLER']}" for n, its in enumerate(ports, 1)),
        listeners=",".join(notified),
        advertised=",".join(each for each in notified if not each.startswith("CONTROLLER")),
        protocols=",".join(f"{name}:{protocols.get(name, name)}" for name in own),
        folder=folder,
        copies=count,
        in_sync=count // 2 + 1,
    )
    return text + (security_properties(folder.parent) if secure else "")


@contextmanager
def kafka_server(
    folder: Path, *, nodes: int = 1, secure: bool = False, port: int | None = None
) -> Iterator[KafkaServer]:
    """A running Kafka; skips where there is no Java, or no Maven to fetch the jars with.

    `port` is that of the first node. `secure` adds the listeners SASL, SSL and SASL_SSL, and
    certificates in `folder`.
    """
    java = require("java")
    jars = fetch()
    names = ["PLAINTEXT", "CONTROLLER", *(("SASL", "SSL", "SASL_SSL") if secure else ())]
    ports = [{name: free_port() for name in names} for _ in range(nodes)]
    if port is not None:
        ports[0]["PLAINTEXT"] = port
    folder.mkdir(parents=True, exist_ok=True)
    if secure:
        make_certificates(folder)
    (folder / "log4j.properties").write_text(LOGGING)
    running = []
    for number, own in enumerate(ports, 1):
        home = folder / f"node-{number}"
        home.mkdir()
        (home / "server.properties").write_text(_properties(home, number, ports, secure))
        command = [
            java,
            "-Xms64m",
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # quick to start matters more than quick to run
            "-Djava.awt.headless=true",
            f"-Dkafka.logs.dir={home}",
            f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}",
            "-cp",
            f"{jars}/*",
        ]
        running.append(KafkaNode(home, command, own))
    cluster = _kafka_uuid()
    server = KafkaServer(folder, running)
    try:
        for node in running:
            node.format(cluster)
        server.start()
        if secure:
            add_user(server.bootstrap)
        yield server
    finally:
        for node in running:
            node.kill()


def serve() -> None:
    """Run a broker where the workers look for one by default, until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="kafka-") as folder,
        kafka_server(Path(folder), port=9092) as server,
    ):
        print(f"Kafka at {server.bootstrap}; Ctrl-C stops it and deletes its data", flush=True)
        signal.pause()


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        sys.stdout.write(f"{fetch()}\n")
