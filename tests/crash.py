"""Running the agent in a process of its own, killing it, and reading what it left."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.traces import START, trace_dict
from tests.waiting import PATIENCE

RAGMETER = [sys.executable, "-m", "ragmeter"]


def traffic(path: Path, count: int, seed: int, step: float = 0.5) -> int:
    """A file of `count` lines, `step` seconds apart, with everything that happens: failures, late
    and repeated traces, several services, a model that is new from the middle on, sampled traces,
    and about 1 % poison. Returns the poison lines.
    """
    rng = random.Random(seed)
    poison = 0
    with path.open("w") as file:
        for number in range(count):
            if rng.random() < 0.01:
                poison += 1
                file.write(rng.choice(['{"trace_id": 1', "[]", '{"service": "x"}', "\x00"]) + "\n")
                continue
            line = trace_dict(
                number if rng.random() < 0.95 else max(0, number - rng.randrange(1, 50)),
                service=rng.choice(["bot", "search", "faq"]),
                timestamp=START + number * step - (rng.random() < 0.1) * rng.expovariate(1 / 60),
                status=rng.choices(["ok", "error", "timeout"], [90, 7, 3])[0],
                timings={"total": rng.lognormvariate(0, 1), "retrieval": rng.random()},
                answer=rng.choice(["Click Forgot password [1].", "It costs 99 euros [7].", ""]),
                model=rng.choice(["a", "b", "c" if number > count / 2 else "a"]),
                sampling={"probability": rng.choice([1, 0.25, 0.1])},
            )
            file.write(json.dumps(line) + "\n")
    return poison


def settings_file(folder: Path, judge: str | None = None, **http: int) -> Path:
    """A configuration whose state lives in `folder`; `judge` is the base URL of one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"  # JSON is YAML
    tree: dict[str, Any] = {
        "segments": ["model"],
        "http": http,
        "state": {"path": str(folder / "s.sqlite")},
    }
    if judge is None:
        tree["limits"] = {"drain_seconds": PATIENCE}  # a busy machine needs more than the usual 10
    else:
        tree["judge"] = {"base_url": judge, "model": "stub"}
        tree["sampling"] = {"judge": 0.2}
    path.write_text(json.dumps(tree))
    return path


def start(folder: Path, *arguments: str | Path) -> subprocess.Popen[bytes]:
    """`ragmeter ARGUMENTS` in the background; its talk goes to `talk.txt` in `folder`."""
    command = [*RAGMETER, *map(str, arguments)]
    root = Path(__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root)}
    with (folder / "talk.txt").open("ab") as talk:
        return subprocess.Popen(command, stdout=talk, stderr=talk, cwd=root, env=env)


@contextmanager
def serving(config: Path, *files: Path) -> Iterator[None]:
    """Run the agent as a process that has read these files; kill it hard at the end."""
    talk = config.parent / "talk.txt"
    before = talk.read_text().count("serving until") if talk.exists() else 0
    arguments = [part for file in files for part in ("--replay", file)]
    process = start(config.parent, "run", "-c", config, *arguments)
    try:
        deadline = time.monotonic() + PATIENCE
        while talk.read_text().count("serving until") == before:
            assert process.poll() is None, talk.read_text()
            assert time.monotonic() < deadline, talk.read_text()
            time.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def without_quotes(text: str) -> Any:
    """A row of the incidents without the questions that it quotes: they are of the texts that were
    stored when it was written, which hangs on where commits end."""
    saved = json.loads(text)
    if isinstance(saved, dict) and "incident" in saved:
        del saved["incident"]["worst_questions"]
        del saved["incident"]["detail"]
    return saved


def left_behind(folder: Path, width: int | None = None) -> dict[str, Any]:
    """Everything that was counted: buckets (all, or those of one width in seconds), counters,
    alerts, the queue and the positions of the dead letters.
    """
    database = sqlite3.connect(f"file:{folder / 's.sqlite'}?mode=ro", uri=True)
    try:
        buckets = {
            tuple(row[:4]): row[4]
            for row in database.execute("SELECT * FROM buckets WHERE width > 0")
            if width in (None, row[2])
        }
        counters = {
            (name, labels): v for name, labels, v in database.execute("SELECT * FROM counters")
        }
        meta = dict(database.execute("SELECT name, value FROM meta"))
        queue = database.execute("SELECT count(*) FROM inbox").fetchone()[0]
        waiting = database.execute("SELECT count(*) FROM drawn").fetchone()[0]
    finally:
        database.close()
    dead = folder / "s.sqlite.dead-letters.jsonl"
    positions = (
        sorted(json.loads(line)["position"] for line in dead.read_text().splitlines())
        if dead.exists()
        else []
    )
    return {
        "buckets": buckets,
        "counters": counters,
        "alerts": {
            name: without_quotes(row) for name, row in meta.items() if name.startswith("incidents/")
        },
        "queue": queue,
        "waiting": waiting,
        "dead": positions,
    }
