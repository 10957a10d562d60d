"""What coding agents read to set ragmeter up: it is short, and its commands work as written."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ragmeter.app.settings import load_settings

from tests.command_lines import commands_in, unknown
from tests.real import require

ROOT = Path(__file__).parents[1]
SKILL = ROOT / "skills" / "ragmeter" / "SKILL.md"
PAGES = [SKILL, ROOT / "llms.txt"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", SKILL.read_text("utf-8"), re.M | re.S)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere_and_the_page_is_short(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(text.split()) < 700
    targets = re.findall(r"\]\(([^)#]+)\)", text)
    assert targets
    assert [target for target in targets if not (page.parent / target).is_file()] == []


def test_the_skill_says_what_it_is_for() -> None:
    head = yaml.safe_load(SKILL.read_text("utf-8").split("---\n")[1])
    assert head["name"] == SKILL.parent.name
    assert 40 < len(head["description"]) < 1024


def test_settings_load_and_commands_exist() -> None:
    for block in blocks("yaml"):
        load_settings(environ={}, overrides=yaml.safe_load(block))
    for block in blocks("sh"):
        for command in commands_in(block):
            assert unknown(command) == [], command


@pytest.mark.timeout(300)
def test_the_commands_work_as_written(tmp_path: Path) -> None:
    require("curl")
    settings, *_ = blocks("yaml")
    (tmp_path / "ragmeter.yaml").write_text(settings)
    lines = (ROOT / "examples" / "mtrag.jsonl").read_text("utf-8").splitlines()
    (tmp_path / "traces.jsonl").write_text("\n".join(lines[:3]))
    otlp, metrics = free_port(), free_port()
    script = "set -e\n" + "\n".join(blocks("sh"))
    script = script.replace(":4318", f":{otlp}").replace(":9464", f":{metrics}")
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RAGMETER_HTTP__OTLP_PORT": str(otlp),
        "RAGMETER_HTTP__METRICS_PORT": str(metrics),
        "RAGMETER_STATE__PATH": str(tmp_path / "state.db"),
        "RAGMETER_MODELS__CPU_SHARE": "0",
    }
    # a file, not a pipe, whose end would wait for the agent in the background
    with (tmp_path / "output").open("wb") as shown:
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environ,
            stdout=shown,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        status = process.wait(timeout=240)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
    output = (tmp_path / "output").read_text("utf-8")
    assert status == 0, output
    assert '"accepted": 1' in output
    assert '"question": "grounded"' in output
    assert "ragmeter_traces_received_total" in output
    assert (tmp_path / "scores.jsonl").stat().st_size > 0
