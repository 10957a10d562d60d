"""Endless traffic from a file of traces: each gets a new id and the time at which it is written.

python traffic.py TRACES.jsonl [--rate N]

JSON lines go to stdout at N a second, round after round. Only the standard library is needed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["main", "traffic"]


def traffic(traces: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The traces, for ever. An id must be new: the same id counts once in `limits.dedupe_hours`."""
    for trace in itertools.cycle(traces):
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        yield trace | {"trace_id": uuid.uuid4().hex, "timestamp": now}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rate", type=float, default=5.0, help="traces a second")
    options = parser.parse_args()
    lines = options.file.read_text(encoding="utf-8").splitlines()
    began = time.monotonic()
    for number, trace in enumerate(traffic([json.loads(line) for line in lines])):
        time.sleep(max(0.0, began + number / options.rate - time.monotonic()))
        sys.stdout.write(json.dumps(trace, ensure_ascii=False) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
