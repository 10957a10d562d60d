"""Embeddings of answers in an agent that is killed while some wait."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.crash import left_behind, start
from tests.scorers.llm.stub_embedding_server import Stub, stub_embeddings
from tests.traces import START, trace_line
from tests.waiting import until


@pytest.mark.slow
def test_a_kill_while_answers_wait_changes_nothing(tmp_path: Path) -> None:
    """`kill -9`, twice: the same counts and the same vectors as without."""
    draw = random.Random(8)
    file = tmp_path / "traffic.jsonl"
    rows = [
        trace_line(number, query=f"Question {draw.randrange(40)}?", passages=[],
                   answer=" ".join(draw.choices("abcdefgh", k=6)), timestamp=START + number)
        for number in range(200)
    ]  # fmt: skip
    file.write_bytes(b"\n".join(rows))
    with stub_embeddings() as stub:
        calm = replayed(tmp_path / "calm", file, stub, kills=0)
        killed = replayed(tmp_path / "killed", file, stub, kills=2)
    assert calm["waiting"] == killed["waiting"] == 0
    embedded = ("ragmeter_consistency_embeddings_total", '[["outcome", "embedded"]]')
    assert calm["counters"][embedded] > 80
    assert any('"asked"' in part for part in calm["consistency"].values())
    assert killed == calm


def replayed(folder: Path, file: Path, stub: Stub, kills: int) -> dict[str, Any]:
    """What a replay has left, killed so many times while answers waited for their embeddings."""
    folder.mkdir()
    config = folder / "config.json"
    state = folder / "s.sqlite"
    config.write_text(
        json.dumps(
            {
                "state": {"path": str(state), "dead_letters": str(folder / "dead.jsonl")},
                "consistency": {
                    "embeddings": {"base_url": stub.base_url, "model": "m", "near": 0.8}
                },
            }
        )
    )

    def run() -> Any:
        return start(folder, "run", "-c", config, "--replay", file, "--exit-after-replay")

    for number in range(kills):
        stub.script.extend(["ok"] * 30 * number)  # the second time some are done by then
        stub.fault = "hang"
        stub.free.clear()
        process = run()
        until(lambda: waiting(state) > 20 and not stub.script)
        time.sleep(random.Random(kills).uniform(0, 0.2))
        process.kill()
        process.wait()
        assert waiting(state) > 0
        stub.free.set()
    stub.fault = ""
    assert run().wait(300) == 0
    found = left_behind(folder)
    with sqlite3.connect(state) as database:
        rows = database.execute("SELECT name, value FROM meta WHERE name LIKE 'consistency%'")
        found["consistency"] = dict(rows.fetchall())
    return found


def waiting(state: Path) -> int:
    """Answers that wait in the state file."""
    if not state.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{state}?mode=ro", uri=True) as database:
            sql = "SELECT count(*) FROM drawn WHERE tier='embedding'"
            return int(database.execute(sql).fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # it is being made
