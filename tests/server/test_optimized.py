"""Requests are validated where Python leaves out asserts: `python -O`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

PROGRAM = """
import asyncio, json, sys
from pathlib import Path
import httpx
from tests.parts.labels.test_desk import LOGIN, labelling

async def run():
    async with labelling(Path(sys.argv[1])) as (_, base):
        async with httpx.AsyncClient(trust_env=False, headers=LOGIN, base_url=base) as client:
            bodies = [b"[]", b"{", b'"x"', b'{"count": "3"}', b'{"trace_id": 3}',
                      b'{"trace_id": "t1"}', b'{"trace_id": "t1", "verdict": []}']
            return [(await client.post("/v1/labels", content=body)).status_code for body in bodies]

print(json.dumps([__debug__, *asyncio.run(run())]))
"""


@pytest.mark.slow
def test_a_malformed_request_for_labels_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-c", PROGRAM, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [False, *[400] * 7]
