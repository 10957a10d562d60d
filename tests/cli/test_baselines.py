"""Baselines by command: the real agent over HTTP, killed right after its reply."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import httpx
import pytest
from pytest_httpserver import HTTPServer

from tests.crash import RAGMETER, serving, settings_file
from tests.exporters.fakes import everything
from tests.http_stub import ANY_PATH
from tests.ports import free_port
from tests.server.guarded import guarded
from tests.traces import START, trace_dict
from tests.waiting import PATIENCE

HOUR = 3600


def traffic(path: Path, begin: float, hours: float) -> Path:
    """A trace every half minute."""
    with path.open("w") as file:
        for n in range(int(hours * 120)):
            at = begin + n * 30.0
            trace = trace_dict(
                int(at), timestamp=at, answer="Click Forgot password [1]." if n % 3 else "No."
            )
            file.write(json.dumps(trace) + "\n")
    return path


def ragmeter(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*RAGMETER, "baseline", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout, " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_promotion_is_durable_when_it_is_answered(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    config = settings_file(tmp_path, otlp_port=free_port(), metrics_port=port)
    with serving(config, traffic(tmp_path / "t.jsonl", START, 8)):
        status, out, _ = ragmeter("show", "--url", url)
        assert status == 0
        assert "bot: works is usually 1, known from " in out
        status, _, reported = ragmeter("promote", "--service", "nobody", "--url", url)
        assert (status, "no service 'nobody' is watched" in reported) == (1, True)
        status, _, reported = ragmeter("promote", "--service", "\udcff", "--url", url)
        assert (status, "is watched" in reported, "Traceback" in reported) == (1, True, False)
        with httpx.Client(base_url=url, trust_env=False) as client:
            refused = client.post("/v1/baselines/promote", content=b"{}")
            assert refused.status_code == 415  # what a page of another site could send
            kind = {"Content-Type": "application/json"}
            page = client.post(
                "/v1/baselines/promote", content=b"{}", headers={**kind, "Origin": url}
            )
            assert page.status_code == 403
            for body in (b"[]", b"{", b'{"service": 3}', b'{"servise": "bot"}', b"[" * 4_000):
                refused = client.post("/v1/baselines/promote", content=body, headers=kind)
                assert refused.status_code == 400
            large = client.post("/v1/baselines/promote", content=b" " * 5_000, headers=kind)
            assert large.status_code == 413
        status, out, _ = ragmeter("promote", "--service", "bot", "--url", url)
        assert (status, out) == (0, "bot: its usual is learned from now on\n")
    with serving(config):
        status, out, _ = ragmeter("show", "--service", "bot", "--url", url)
        assert (status, "bot: works has no usual yet" in out) == (0, True)


def test_without_an_agent_the_commands_say_so() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    for command in ("show", "promote"):
        status, out, reported = ragmeter(command, "--url", url)
        assert (status, out) == (1, "")
        assert f"{url}/v1/baselines" in reported.replace(" ", "")
        assert "Traceback" not in reported


def test_what_is_no_agent_is_told_in_a_line(httpserver: HTTPServer) -> None:
    httpserver.expect_request(ANY_PATH).respond_with_json({"status": "ok"})
    for command in ("show", "promote"):
        status, out, reported = ragmeter(command, "--url", httpserver.url_for(""))
        assert (status, out) == (1, "")
        assert "no answer of an agent" in reported
        assert "Traceback" not in reported


def test_a_token_that_is_missing_is_named() -> None:
    with guarded(everything(), token="t" * 20) as place:
        status, out, reported = ragmeter("show", "--url", f"http://{place}")
    assert (status, out) == (1, "")
    text = " ".join(reported.split())
    assert "(status 401: a token is needed); set http.token to that of the agent" in text
