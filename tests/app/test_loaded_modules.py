"""`ragmeter run` loads only what a running agent needs, and collects garbage once it runs."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.patched import running
from tests.traces import trace_line
from tests.waiting import PATIENCE

# Parts of other commands, each with dependencies and a start-up time of its own.
UNUSED = ("ragmeter.canaries", "ragmeter.offline", "markdown_it")


def test_a_running_agent_has_loaded_no_part_of_other_commands(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    patch = (
        "import atexit, gc, pathlib\n"
        "gc.disable()\n"  # as `ragmeter.cli.start` does
        f"path = pathlib.Path({str(modules)!r})\n"
        "atexit.register(\n"
        "    lambda: path.write_text('\\n'.join([f'collects: {gc.isenabled()}', *sys.modules]))\n"
        ")"
    )
    judge = {"base_url": "http://127.0.0.1:9/v1", "model": "none"}
    process, otlp, _ = running(tmp_path, patch, {}, judge=judge)
    try:
        url = f"http://127.0.0.1:{otlp}/v1/rag/traces"
        assert httpx.post(url, content=trace_line()).status_code == 200
    finally:
        process.terminate()
        process.wait(PATIENCE)
    collects, *loaded = modules.read_text().splitlines()
    assert collects == "collects: True"
    assert "ragmeter.embedded.agent" in loaded
    assert [name for name in loaded if name.startswith(UNUSED)] == []
