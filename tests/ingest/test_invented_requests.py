"""Requests in the forms of many instrumentors, written by hand: what is read of each, and why not.

`tests/data/invented_requests.json` has a request of OTLP each, and the fields that its user saw.
"""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

from ragmeter.config.inputs import OtlpSettings
from ragmeter.offline.inspection import inspect_files, print_inspection
from rich.console import Console

from tests.tables import each_row

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "invented_requests.json").read_text("utf-8")
)


@each_row("case", CASES, ids=[case["name"] for case in CASES])
def test_what_the_user_saw_is_read(case: dict[str, Any], tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps(case["body"]), "utf-8")
    inspection = inspect_files([body], OtlpSettings())
    ((trace, origins),) = inspection.traces
    passages = trace.passages
    got = {
        "query": trace.query,
        "answer": trace.answer,
        "passages": None if passages is None else [passage.text for passage in passages],
        "model": trace.model,
        "finish_reason": trace.finish_reason,
        "status": trace.status,
        "tokens": trace.usage and [trace.usage.input_tokens, trace.usage.output_tokens],
        "cost": trace.usage and trace.usage.cost_usd,
        "guessed": trace.guessed,
    }
    assert {name: got[name] for name in case["expected"]} == case["expected"]
    missing = [name for name in ("query", "passages", "answer") if got[name] is None]
    if missing:  # what was looked at, and a cure
        written = StringIO()
        print_inspection(inspection, Console(width=2_000, file=written))
        shown = written.getvalue().splitlines()
        for name in missing:
            (line,) = [one for one in shown if one.startswith(f"  {name}: ")]
            assert "looked at" in line
            assert len(line.split("; ")) >= 3
    for name in ("query", "passages", "answer"):
        if got[name]:
            assert origins[name], "the span that it is from"
