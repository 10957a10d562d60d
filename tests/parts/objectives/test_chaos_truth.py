"""The oracle of chaos runs notices wrong weights, by the counters of objectives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ragmeter.core.tiers import Tier
from ragmeter.sampling import sampler
from ragmeter.sampling.sampler import Sampler
from ragmeter.trace import Trace

from tests.chaos.embedded.exported import SENT, TRAFFIC, changed, export
from tests.chaos.embedded.truth import JUDGED, differences

SLOS = [
    {
        "name": JUDGED,
        "bad": "low",
        "metric": "relevance",
        "scorer": "umbrela",
        "threshold": 10,
    },
    {"name": "up", "bad": "failed"},
]
HEAVY = json.loads(TRAFFIC[5])["sampling"]["probability"]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    return export(tmp_path_factory.mktemp("truth"), TRAFFIC, 1.0, slos=SLOS)


def test_a_sampled_run_of_the_same_traces_has_no_differences(
    tmp_path: Path, truth: dict[str, float]
) -> None:
    assert differences(export(tmp_path, TRAFFIC, 0.4, slos=SLOS), truth, SENT) == []


def test_one_wrong_weight_is_noticed(tmp_path: Path, truth: dict[str, float]) -> None:
    lighter = changed(TRAFFIC[5], sampling={"probability": HEAVY / 2})
    found = export(tmp_path, [*TRAFFIC[:5], lighter, *TRAFFIC[6:]], 0.4, slos=SLOS)
    notified = 'rag_slo_events_total{service="desk",slo="up"}'
    assert any(notified in line for line in differences(found, truth, SENT))


def test_weights_that_forget_the_sampling_are_noticed(
    tmp_path: Path, truth: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: Callable[..., sampler.SamplingDraw] = Sampler.draw

    def forgetful(
        self: Sampler, trace: Trace, tier: Tier, ratio: float = 1.0
    ) -> sampler.SamplingDraw:
        return sampler.SamplingDraw(drawn(self, trace, tier, ratio).taken, trace.probability)

    monkeypatch.setattr(Sampler, "draw", forgetful)
    found = differences(export(tmp_path, TRAFFIC, 0.4, slos=SLOS), truth, SENT)
    assert any("the weights of the judged traces sum up to" in line for line in found), found
