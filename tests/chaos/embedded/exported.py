"""Exports of an agent in this process, for the tests of what the truth notices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier, TierScorer
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.native import decode_trace
from ragmeter.scoring.slow_tiers import SlowTiers
from ragmeter.trace import Trace
from ragmeter_exporters.prometheus import PrometheusExporter

from tests.chaos.embedded.judge import QUALITY
from tests.chaos.embedded.traffic import native
from tests.chaos.embedded.truth import Sent
from tests.samples import samples
from tests.traces import START

__all__ = ["COUNT", "SENT", "TRAFFIC", "changed", "export"]

COUNT = 240
SENT = Sent({"http": COUNT}, poison=[7, 9], dead=[9, 7])
TRAFFIC = [native(1, "http" if n % 3 else "overload", n, START + n) for n in range(COUNT)]


class Fake:
    """A judge that reads the grades off the passages."""

    tier: Tier = "judge"
    pairs: Sequence[MetricScorer] = (("relevance", "umbrela"),)

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        texts = [passage.text or "" for passage in trace.passages or []]
        grades = [int(found.group(1)) for text in texts if (found := QUALITY.search(text))]
        value = sum(grades) / len(grades)
        return [Score("relevance", "umbrela", ScoreState.SCORED, value, fingerprint="f")]


def export(folder: Path, lines: Sequence[bytes], rate: float, **settings: Any) -> dict[str, float]:
    """Of an agent in this process that has read the lines and judged so many of them."""
    state = {"path": str(folder / "s.sqlite")}
    tree = {
        "windows": ["24h"],
        "state": state,
        "sampling": {"judge": rate},
        **settings,
    }
    parsed = load_settings(environ={}, overrides=tree)
    tiers: dict[Tier, TierScorer] = {"judge": Fake()}
    running = EmbeddedAgent(parsed, [], live=False, tiers=lambda _: SlowTiers(tiers), parts=PARTS)
    running.start()
    try:
        items = [(decode_trace(line, 2**20), number) for number, line in enumerate(lines)]
        running.accept(items, "http", written=set())
        running.wait_idle()
        exporter = PrometheusExporter(running)
        return samples((exporter.render() + exporter.render_detail()).decode())
    finally:
        running.stop(5)


def changed(line: bytes, **fields: Any) -> bytes:
    """A trace with other fields."""
    return json.dumps({**json.loads(line), **fields}).encode()
