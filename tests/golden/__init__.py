"""What the bundled traces give: scores, exported families and alerts, as hashes.

`python -m tests.golden` writes `golden.json` and `texts.json` anew, after a change that is meant to
move numbers. `texts` has the built-in scores of many more texts, which the native kernel reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from ragmeter.alerts.rules import load_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.clocks import Clocks
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.native import decode_trace
from ragmeter_exporters.prometheus import PrometheusExporter

__all__ = ["GOLDEN", "exported", "scored"]

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "examples" / "mtrag.jsonl"
GOLDEN = Path(__file__).with_name("golden.json")
START = 1_790_000_000.0
GAP = 20.0  # seconds between two traces: 230 of them fill more than an hour
# of the process or of the clock on the wall, not of the traces
_LONG_NUMBER = re.compile(r"\d+\.\d{11,}(e-?\d+)?")
VOLATILE = ("process_", "python_", "ragmeter_processing", "ragmeter_oldest", "ragmeter_ready")


def digest(text: str) -> str:
    """A hash of a text, of whose numbers 12 digits count: `sum` rounds otherwise from 3.12 on."""
    rounded = _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.12g}", text)
    return hashlib.sha256(rounded.encode()).hexdigest()[:16]


def scored() -> dict[str, str]:
    """A hash of all that `ragmeter score` writes of each bundled trace, by trace id."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "scores.jsonl"
        command = [sys.executable, "-m", "ragmeter", "score", str(TRACES), "-o", str(out)]
        # the built-in scores alone: those of the embedded model differ between processors
        environment = {**os.environ, "RAGMETER_MODELS__CPU_SHARE": "0"}
        subprocess.run(command, check=True, capture_output=True, env=environment)
        lines = out.read_text("utf-8").splitlines()
    return {json.loads(line)["trace_id"]: digest(line) for line in lines}


def traffic() -> list[bytes]:
    """The bundled traces of one service on a time line of their own, the second half failing."""
    found = []
    lines = TRACES.read_text("utf-8").splitlines()
    for number, line in enumerate(lines * 2):
        trace = json.loads(line)
        trace |= {
            "trace_id": f"golden-{number}",
            "service": "shop-bot",
            "timestamp": START + GAP * number,
            "timings": {"total": 1.0 + (number % 7) / 4},
            "tags": {"tenant": f"t{number % 3}"},
            "model": f"m{number // len(lines)}",
        }
        if number >= len(lines) and number % 3 == 0:
            trace |= {"status": "error", "error": "upstream"}
        found.append(json.dumps(trace).encode())
    return found


def exported() -> dict[str, Any]:
    """A hash of each exported family after the traffic, by name, and the alerts on the way."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(
            environ={},
            overrides={
                "state": {"path": f"{folder}/s"},
                "segments": ["tenant", "model"],
                "sampling": {"people": 0.0},
            },
        )
        end = START + GAP * 1000
        agent = EmbeddedAgent(
            settings, load_rules(), live=False, clocks=Clocks(wall=lambda: end), parts=PARTS
        )
        agent.start()
        items = [(decode_trace(line, 2**20), at) for at, line in enumerate(traffic())]
        agent.accept(items, "file", written=set())
        agent.wait_idle()
        families: dict[str, list[str]] = defaultdict(list)
        exporter = PrometheusExporter(agent)
        text = (exporter.render() + exporter.render_detail()).decode()
        with agent.lock():
            alerts = sorted(
                (one.rule, one.segment, one.state, one.fired_at) for one in agent.alerts()
            )
        agent.stop(10)
    for line in text.splitlines():
        name = line.split()[2] if line.startswith("# ") else line.partition("{")[0].split()[0]
        if line.startswith("# TYPE ") or (line and not line.startswith("#")):
            families[name].append(line)
    return {
        "families": {
            name: digest("\n".join(sorted(lines)))
            for name, lines in sorted(families.items())
            if not name.startswith(VOLATILE)
        },
        "alerts": alerts,
    }
