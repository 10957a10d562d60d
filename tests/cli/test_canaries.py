from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ragmeter.cli.main import app

SUITE = Path(__file__).parents[2] / "examples" / "canaries.yaml"
NOBODY = "http://127.0.0.1:9"  # the port "discard"


def run(*arguments: object) -> Result:
    words = ["canary", "run", SUITE, "--once", "--per-minute", 6000, *arguments]
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--endpoint", "http://127.0.0.1:99999/"], "--endpoint: there is no port 99999"),
        (
            ["--endpoint", NOBODY, "--embeddings", "nonsense", "--embedding-model", "m"],
            "--embeddings: http:// or https:// and a host are needed",
        ),
        (["--endpoint", NOBODY, "--token-file", "missing"], "missing: No such file or directory"),
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


def test_traces_that_wait_are_said_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragmeter.cli.canaries.FINISH_SECONDS", 0.1)
    spool = tmp_path / "spool.jsonl"
    found = run("--endpoint", NOBODY, "--to", NOBODY, "--spool", spool)
    assert found.exit_code == 1
    assert f"4 traces were not handed over and wait in {spool}\n" in found.stderr
    assert len(spool.read_bytes().splitlines()) == 4
