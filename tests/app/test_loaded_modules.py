"""`ragmeter run` loads only what a running agent needs, and collects garbage once it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.patched import running
from tests.traces import trace_line
from tests.waiting import PATIENCE

# Parts of other commands, each with dependencies and a start-up time of its own.
UNUSED = ("ragmeter.canaries", "ragmeter.offline", "markdown_it")

# Only a judge, a receiver of alerts or a source of texts needs these: a fifth of a start.
ON_DEMAND = ("httpx", "rich", "ragmeter.scorers.judge", "ragmeter.scorers.llm.client")


def loaded_by_agent(tmp_path: Path, **settings: Any) -> list[str]:
    """Return the modules that an agent has loaded that took a trace."""
    modules = tmp_path / "modules"
    patch = (
        "import atexit, gc, pathlib\n"
        "gc.disable()\n"  # as `ragmeter.cli.start` does
        f"path = pathlib.Path({str(modules)!r})\n"
        "atexit.register(\n"
        "    lambda: path.write_text('\\n'.join([f'collects: {gc.isenabled()}', *sys.modules]))\n"
        ")"
    )
    process, otlp, _ = running(tmp_path, patch, {}, **settings)
    try:
        url = f"http://127.0.0.1:{otlp}/v1/rag/traces"
        assert httpx.post(url, content=trace_line()).status_code == 200
    finally:
        process.terminate()
        process.wait(PATIENCE)
    collects, *loaded = modules.read_text().splitlines()
    assert collects == "collects: True"
    assert "ragmeter.embedded.agent" in loaded
    return loaded


@pytest.mark.parametrize(
    ("settings", "unused"),
    [
        ({}, UNUSED + ON_DEMAND),
        ({"judge": {"base_url": "http://127.0.0.1:9/v1", "model": "none"}}, UNUSED),
    ],
    ids=["as shipped", "with a judge"],
)
def test_a_running_agent_has_loaded_nothing_that_it_does_not_use(
    tmp_path: Path, settings: dict[str, Any], unused: tuple[str, ...]
) -> None:
    loaded = loaded_by_agent(tmp_path, **settings)
    assert [name for name in loaded if name.startswith(unused)] == []
