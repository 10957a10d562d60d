from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ragmeter.config.loader import load_settings
from ragmeter.scoring.slow_tiers import build_slow_tiers

ROOT = Path(__file__).parents[2]

LOOK = """
import sys
import ragmeter.cli.main, ragmeter.embedded.agent, ragmeter.app.embedded_agent
from ragmeter.config.loader import load_settings
from ragmeter.scoring.slow_tiers import build_slow_tiers
build_slow_tiers(load_settings(environ={}), {})
print([name for name in sys.modules if name.startswith("ragmeter.scorers.llm.embeddings")])
"""


def test_nothing_of_it_is_loaded_while_it_is_off() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_there_is_a_tier_only_where_the_settings_name_a_server() -> None:
    consistency = {"embeddings": {"base_url": "http://127.0.0.1:9/v1", "model": "m"}}
    there = build_slow_tiers(load_settings(environ={}, overrides={"consistency": consistency}), {})
    assert set(there.scorers) == {"embedding"}
    assert ("ragmeter_embeddings_up", (), 1.0) in there.gauges()
    off = load_settings(environ={}, overrides={"consistency": {**consistency, "enabled": False}})
    for settings in (load_settings(environ={}), off):
        assert build_slow_tiers(settings, {}).scorers == {}
        assert build_slow_tiers(settings, {}).gauges() == []
