"""`ragmeter replay` as it is called: options, exit statuses, what is said."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ragmeter.cli.main import app
from typer.testing import CliRunner, Result

from tests.crash import RAGMETER, start
from tests.offline.taking import Taking, taking
from tests.ports import free_port
from tests.traces import trace_line
from tests.waiting import PATIENCE, until


@pytest.fixture
def server() -> Iterator[Taking]:
    with taking() as found:
        yield found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"".join(trace_line(n) + b"\n" for n in range(40)))
    return path


def replay(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def test_a_file_is_sent_and_what_became_of_it_is_said(server: Taking, file: Path) -> None:
    with file.open("ab") as out:
        out.write(b"{broken\n")
    done = replay(file, "--to", "http", "--url", server.url)
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    assert "40 traces sent, 1 items unreadable" in done.stderr
    assert len(server.took) == 40
    again = replay(file, "--to", "http", "--url", f"{server.url}/")
    assert "40 traces sent (40 of them were known)" in again.stderr


def test_the_agent_of_the_configuration_and_its_token(
    server: Taking, file: Path, tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    http = {"otlp_host": "127.0.0.1", "host": "127.0.0.9", "otlp_port": server.port}
    token = tmp_path / "token"
    token.write_text("only-for-sending-traces-0123456789\n")
    config.write_text(json.dumps({"http": {**http, "send_token_file": str(token)}}))
    done = replay(file, "--to", "http", "-c", config)
    assert done.exit_code == 0, done.output
    assert server.tokens == ["Bearer only-for-sending-traces-0123456789"]


def test_an_agent_that_is_down_is_one_line(file: Path) -> None:
    done = replay(file, "--to", "http", "--url", f"http://127.0.0.1:{free_port()}")
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("Connection refused; is `ragmeter run` up?")


def test_nothing_that_gets_in_is_1_and_an_empty_file_is_0(server: Taking, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"")
    assert replay(path, "--to", "http", "--url", server.url).exit_code == 0
    path.write_bytes(b"{broken\n")
    done = replay(path, "--to", "http", "--url", server.url)
    assert (done.exit_code, server.asked) == (1, 0)
    server.refuse = {"t0"}
    path.write_bytes(trace_line(0))
    done = replay(path, "--to", "http", "--url", server.url)
    assert done.exit_code == 1
    assert "0 traces sent, 0 items unreadable, 1 refused" in done.stderr
    assert replay(tmp_path / "none", "--to", "http", "--url", server.url).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "--to"),
        (("--to", "smtp"), "smtp"),
        (("--to", "http", "--rate", "0"), "--rate"),
        (("--to", "http", "--url", "example"), "http:// or https://"),
        (("--to", "kafka", "--url", "http://a"), "--url is for --to http"),
        (("--to", "http", "--shift", "soon"), "--shift: a duration like"),
        (("--to", "http", "--config", "nowhere.yaml"), "configuration"),
    ],
)
def test_a_mistake_in_the_call_is_2(file: Path, arguments: tuple[str, ...], why: str) -> None:
    done = replay(file, *arguments)
    assert done.exit_code == 2, done.output
    assert why in done.stderr


def test_a_stream_has_no_second_reading(server: Taking) -> None:
    done = replay("-", "--to", "http", "--url", server.url, "--shift", "last")
    assert done.exit_code == 2
    assert "can be read only once" in done.stderr


def test_a_port_that_nobody_knows_must_be_named(file: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("http: {otlp_port: 0}")
    done = replay(file, "--to", "http", "-c", config)
    assert done.exit_code == 2
    assert "--url is needed" in done.stderr


def test_the_latest_trace_becomes_one_of_now(server: Taking, file: Path) -> None:
    before = time.time()
    done = replay(file, "--to", "http", "--url", server.url, "--shift", "last")
    assert done.exit_code == 0, done.output
    times = [item.trace.timestamp.timestamp() for item in server.bodies[0]]
    assert before - 1 < max(times) <= time.time()
    assert [later - times[0] for later in times] == list(range(40))
    assert "times are moved by" in done.stderr


def test_the_same_file_is_not_new(server: Taking, file: Path) -> None:
    replay(file, "--to", "http", "--url", server.url)
    replay(file, "--to", "http", "--url", server.url, "--shift", "sent")
    assert len(server.took) == 40


def test_what_ctrl_c_leaves_the_next_call_sends(server: Taking, file: Path, tmp_path: Path) -> None:
    process = start(
        tmp_path,
        "replay",
        file,
        "--to",
        "http",
        "--url",
        server.url,
        "--rate",
        "2",
        "--shift",
        "30d",
    )
    try:
        until(lambda: len(server.took) >= 3)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    finally:
        process.kill()
        process.wait()
    talk = (tmp_path / "talk.txt").read_text()
    assert "Traceback" not in talk
    assert re.search("interrupted: [0-9]+ traces were sent", talk), talk
    known = len(server.took)
    done = replay(file, "--to", "http", "--url", server.url, "--shift", "30d")
    assert done.exit_code == 0, done.output
    assert server.took == [f"t{n}" for n in range(40)]
    assert f"40 traces sent ({known} of them were known)" in done.stderr


def test_the_standard_input_is_a_minus(server: Taking, file: Path) -> None:
    command = [*RAGMETER, "replay", "-", "--to", "http", "--url", server.url]
    with file.open("rb") as stdin:
        done = subprocess.run(command, stdin=stdin, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert len(server.took) == 40
