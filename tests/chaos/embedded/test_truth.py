"""The oracle notices one trace that is lost, one that is there twice, and one wrong value."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.embedded.exported import SENT, TRAFFIC, changed, export
from tests.chaos.embedded.truth import Sent, differences, intervals, labels_of


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    return export(tmp_path_factory.mktemp("truth"), TRAFFIC, 1.0)


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    return export(tmp_path_factory.mktemp("sampled"), TRAFFIC, 0.4)


def test_a_sampled_run_of_the_same_traces_has_no_differences(
    sampled: dict[str, float], truth: dict[str, float]
) -> None:
    assert differences(sampled, truth, SENT) == []
    assert len(intervals(sampled, truth)) >= 2


LIKE_NONE = changed(TRAFFIC[5], trace_id="of nobody")


@pytest.mark.parametrize(
    ("lines", "notified"),
    [
        (TRAFFIC[:-1], "239 traces are counted, 240 were accepted"),
        ([*TRAFFIC, LIKE_NONE], "241 traces are counted, 240 were accepted"),
        # one lost and another twice: the sums are right and nothing else
        ([*TRAFFIC[:-1], LIKE_NONE], "expected"),
        (
            [*TRAFFIC[:5], changed(TRAFFIC[5], timings={"total": 99.0}), *TRAFFIC[6:]],
            "rag_latency_quantile",
        ),
    ],
    ids=["lost", "twice", "both", "latency"],
)
def test_one_trace_that_went_wrong_is_noticed(
    tmp_path: Path, truth: dict[str, float], lines: list[bytes], notified: str
) -> None:
    assert json.loads(TRAFFIC[5])["service"] == "desk"
    found = differences(export(tmp_path, lines, 0.4), truth, SENT)
    assert any(notified in line for line in found), found


def test_an_estimate_far_from_the_truth_is_noticed(
    sampled: dict[str, float], truth: dict[str, float]
) -> None:
    name = next(row.name for row in intervals(sampled, truth) if "relevance_mean" in row.name)
    rest = name.removeprefix("rag_relevance_mean")
    half = sampled[f"rag_relevance_ci_upper{rest}"] - sampled[name]
    moved = {**truth, name: sampled[name] + 1.5 * half}
    assert differences(sampled, moved, SENT) == []  # once in twenty that happens
    moved = {**truth, name: sampled[name] + 2.5 * half}
    assert any("far from" in line for line in differences(sampled, moved, SENT))
    every = {
        **truth,
        **{
            row.name: row.upper + 0.1 * (row.upper - row.lower) for row in intervals(sampled, truth)
        },
    }
    assert any("intervals miss" in line for line in differences(sampled, every, SENT))


def test_lies_of_a_judge_widen_what_its_estimates_may_miss(
    sampled: dict[str, float], truth: dict[str, float]
) -> None:
    name = next(row.name for row in intervals(sampled, truth) if "relevance_mean" in row.name)
    service = labels_of(name)[1]["service"]
    rest = name.removeprefix("rag_relevance_mean")
    moved = {**truth, name: sampled[f"rag_relevance_ci_upper{rest}"] + 0.9}
    assert any("far from" in line for line in differences(sampled, moved, SENT))
    assert differences(sampled, moved, replace(SENT, lies={service: 0.2})) == []
    assert differences(sampled, moved, replace(SENT, lies={"another": 0.2})) != []


def test_what_the_built_in_scorers_drew_is_held_against_its_intervals(
    tmp_path: Path, truth: dict[str, float]
) -> None:
    found = export(tmp_path, TRAFFIC, 0.4, sampling={"judge": 0.4, "builtin": 0.4})
    assert differences(found, truth, SENT) == []
    row = next(row for row in intervals(found, truth) if 'scorer="builtin"' in row.name)
    moved = {**truth, row.name: row.upper + row.upper - row.lower}
    assert any("far from" in line for line in differences(found, moved, SENT))
    latency = next(name for name in found if name.startswith("rag_latency_quantile"))
    assert differences({**found, latency: 99.0}, truth, SENT)  # of every trace, still exact


def test_no_estimate_at_all_is_noticed(truth: dict[str, float]) -> None:
    blind = {n: v for n, v in truth.items() if "umbrela" not in labels_of(n)[1].get("scorer", "")}
    assert "no interval of the judge could be compared" in differences(blind, truth, SENT)


@pytest.mark.parametrize(
    ("name", "by", "notified"),
    [
        ('ragmeter_results_total{metric="relevance",scorer="umbrela"', 1.0, "241 in all states"),
        ('ragmeter_seen_total{metric="error"', -1.0, "error by builtin: 239 seen"),
        ("ragmeter_accounting_mismatch{", 1.0, "ragmeter_accounting_mismatch"),
        ('ragmeter_traces_received_total{source="http"}', 1.0, "http: 241 received less 0"),
    ],
)
def test_counts_that_do_not_add_up_are_noticed(
    sampled: dict[str, float], truth: dict[str, float], name: str, by: float, notified: str
) -> None:
    key = next(key for key in sampled if key.startswith(name))
    found = differences({**sampled, key: sampled[key] + by}, truth, SENT)
    assert any(notified in line for line in found), found


def test_dead_letters_that_are_missing_twice_or_strange_are_noticed(
    sampled: dict[str, float], truth: dict[str, float]
) -> None:
    sent = Sent(SENT.fresh, poison=[3, 7], dead=[7, 7, 11])
    assert differences(sampled, truth, sent) == [
        "poison at 3 of the file is in 0 dead letters",
        "poison at 7 of the file is in 2 dead letters",
        "what is before 11 of the file is no poison",
    ]
