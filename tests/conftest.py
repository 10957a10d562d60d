"""What all tests share: how patient the property tests are, a list of what failed, and a real
Kafka."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
import typer.testing
from hypothesis import HealthCheck, settings
from ragmeter.config.settings import Settings
from ragmeter.core.tiers import TierScorer
from ragmeter.embedded import agent, worker
from ragmeter.metrics import registry
from ragmeter.metrics.custom import CustomMetric
from ragmeter.scoring import slow_tiers

from tests.command_lines import built_once
from tests.fork_server import forking
from tests.kafka_server import KafkaServer, kafka_server

# How long an example takes says something about the machine and nothing about the property; what
# hangs is ended by the time limit of a test.
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=50,  # others in each run; a test to which more matter says so
)
settings.load_profile("patient")


def pytest_configure() -> None:
    """Take SIGINT even if a shell started the tests in the background: it has that ignored, which
    the processes of tests would inherit.

    And collect no garbage while tests are collected: of what is imported and made nothing goes.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection(session: pytest.Session) -> None:
    """Let each worker import the test files from another one on.

    pytest rewrites and compiles each file that it has not seen before, which takes 10 s of a
    processor for all of them. So each worker does that for some, and reads what the others did.
    """
    config = session.config
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or config.args != config.getini("testpaths"):
        return
    files = sorted((config.rootpath / "tests").rglob("test_*.py"))
    number, workers = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    first = len(files) * number // workers
    for file in [*files[first:], *files[:first]]:
        module = ".".join(file.relative_to(config.rootpath).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):  # pytest tells what is wrong
            import_module(module)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """List what fails in the file that CI_FAILURES names, for CI (.ci/run)."""
    if report.failed:
        list_failure(report.nodeid, report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        list_failure(report.nodeid, report)


def list_failure(node: str, report: pytest.TestReport | pytest.CollectReport) -> None:
    """Append one bounded line at once, so that the list outlives a suite that is ended."""
    path = os.environ.get("CI_FAILURES")
    if path is None or "PYTEST_XDIST_WORKER" in os.environ:  # the controller hears of all
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr) if crash is None else crash.message
    lines = text.strip().splitlines() or [""]
    first = lines[0] if crash is not None else lines[-1]
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{node}: {first[:200]}\n")


def pytest_collection_finish() -> None:
    """Let garbage collections pass over what lives as long as the tests: 7,000 of them, and all
    modules. The little that is garbage among it stays: to look for it takes longer."""
    gc.enable()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pass over sockets that kafka-python (3.0) leaves open.

    A client that is closed while a connection is being made or a request is half written drops the
    socket, and the garbage collector closes it in whatever test comes then.
    """
    left_open = (
        "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
    )
    if any("broker" in getattr(item, "fixturenames", ()) for item in items):
        for item in items:
            item.add_marker(pytest.mark.filterwarnings(left_open))


@pytest.fixture(scope="session", autouse=True)
def _no_embedded_model() -> Iterator[None]:
    """Leave the embedded model out where a test does not name it: it takes a second to load, and
    0.1 s a trace."""
    build = slow_tiers.build_model_tier

    def build_named(settings: Settings, niceness: int = 0) -> TierScorer | None:
        named = settings.hhem.path is not None or "models" in settings.model_fields_set
        return build(settings, niceness) if named else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGMETER_MODELS__CPU_SHARE", "0")  # for processes
        patch.setattr(slow_tiers, "build_model_tier", build_named)
        yield


@pytest.fixture(scope="session", autouse=True)
def _hasty_agents() -> Iterator[None]:
    """Let the agents of this process commit at once what comes live, and see soon that they are
    idle: the tests wait for hundreds of commits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "_LINGER_SECONDS", 0.02)
        patch.setattr(worker, "IDLE_SECONDS", 0.1)
        patch.setattr(agent, "_POLL_SECONDS", 0.004)
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_are_built_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", built_once)
        patch.setattr(typer.testing, "_get_command", built_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _forked_processes() -> Iterator[None]:
    with forking():
        yield


@pytest.fixture(scope="session")
def httpserver_listen_address() -> tuple[str, int]:
    """Of the stubs of pytest-httpserver: a number, for `localhost` may be ::1 first."""
    return "127.0.0.1", 0


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """With the listeners of all protocols, for one of them costs as much to start as all."""
    with kafka_server(tmp_path_factory.mktemp("kafka"), secure=True) as server:
        yield server


@pytest.fixture
def swept() -> Iterator[None]:
    """For tests in which brokers go down: kafka-python leaves sockets open whose broker was down
    when they were to connect. They are found here, and not in whatever test comes next."""
    yield
    gc.collect()


@pytest.fixture
def install_metric(monkeypatch: pytest.MonkeyPatch) -> Callable[[CustomMetric], None]:
    """Install a user's own metric for the duration of a test."""

    def install(metric: CustomMetric) -> None:
        catalogue = registry.metric_catalogue().with_metric(metric)
        monkeypatch.setattr(registry, "metric_catalogue", lambda: catalogue)

    return install


@pytest.fixture(autouse=True)
def garbage_collector() -> Iterator[None]:
    """Restore the thresholds of the garbage collector, which an agent in this process raises."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
