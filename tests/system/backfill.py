"""A Prometheus data folder that knows of the hours before it was started."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.real import require

__all__ = ["backfilled"]


def backfilled(folder: Path, scrapes: Sequence[tuple[float, str]], labels: dict[str, str]) -> None:
    """Blocks in `folder`/data of what was exported at these times, as if it had been scraped; a
    scrape adds `labels`."""
    lines: dict[str, list[str]] = {}
    target = [f'{key}="{value}"' for key, value in labels.items()]
    for at, text in scrapes:
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                own = [f'{key}="{_escaped(value)}"' for key, value in one.labels.items()]
                line = f"{one.name}{{{','.join([*own, *target])}}} {one.value!r} {at:.3f}"
                lines.setdefault(one.name, []).append(line)
    text = "\n".join([*(line for name in sorted(lines) for line in lines[name]), "# EOF\n"])
    (folder / "scrapes").write_text(text.replace(" inf ", " +Inf "))
    command = [require("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
    done = subprocess.run(
        [*command, str(folder / "scrapes"), str(folder / "data")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
