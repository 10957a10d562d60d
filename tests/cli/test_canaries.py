from __future__ import annotations

from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from ragmeter.cli.main import app
from typer.testing import CliRunner, Result

SUITE = Path(__file__).parents[2] / "examples" / "canaries.yaml"
NOBODY = "http://127.0.0.1:9"  # the port "discard"


def run(*arguments: object) -> Result:
    words = ["canary", "run", SUITE, "--once", "--per-minute", 6000, *arguments]
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--endpoint", "http://127.0.0.1:99999/"], "--endpoint: there is no port 99999"),
        (["--endpoint", NOBODY, "--token-file", "missing"], "missing: No such file or directory"),
        (
            ["--endpoint", NOBODY, "--gate", "balanced", "--junit", "missing/junit.xml"],
            "--junit: missing/junit.xml: missing is no folder to write to",
        ),
        (
            ["--endpoint", NOBODY, "--gate", "balanced", "--junit", "."],
            "--junit: .: a directory",
        ),
    ],
)
def test_a_mistake_in_the_call_is_found_before_anything_is_sent(
    tmp_path: Path, arguments: list[str], why: str
) -> None:
    file = tmp_path / "traces.jsonl"
    found = run(*arguments, "-o", file)
    assert (found.exit_code, found.stderr) == (2, f"ragmeter: {why}\n")
    assert not file.exists()


def test_an_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    found = run("--endpoint", NOBODY, "-o", tmp_path)
    assert found.exit_code == 1
    assert found.stderr.endswith(f"ragmeter: {tmp_path}: Is a directory\n")


def test_traces_that_nobody_took_are_said_to_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragmeter.cli.canaries.FINISH_SECONDS", 0.1)
    found = run("--endpoint", NOBODY, "--to", NOBODY)
    assert found.exit_code == 1
    assert "4 traces were not handed over and are lost\n" in found.stderr


def test_the_token_comes_from_the_environment_and_is_not_shown(
    tmp_path: Path, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    httpserver.expect_request("/ask").respond_with_json({"answer": "Refunds take 14 days."})
    monkeypatch.setenv("RAGMETER_CANARY_TOKEN", "secret-of-the-service")
    file = tmp_path / "traces.jsonl"
    found = run("--endpoint", httpserver.url_for("/ask"), "-o", file)
    keys = {request.headers["Authorization"] for request, _ in httpserver.log}
    assert keys == {"Bearer secret-of-the-service"}, found.output
    assert "secret-of" not in found.output + file.read_text()


def test_a_password_in_the_url_and_a_token_are_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_CANARY_TOKEN", "secret")
    found = run("--endpoint", "http://user:hidden@127.0.0.1:9", "-o", "never-written.jsonl")
    assert found.exit_code == 2
    assert found.stderr == (
        "ragmeter: the endpoint has a user or password, and there is a token too\n"
    )
