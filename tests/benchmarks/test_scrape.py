from __future__ import annotations

from ragmeter_exporters.snapshot import take_snapshot

from benchmarks.scrape import compare_with_the_library, filled, measure


def test_the_benchmark_measures_full_windows() -> None:
    snapshot = take_snapshot(filled(2, traces=40), detail=True)
    metrics = {metric for _, _, metric, _, _, _ in snapshot.estimates}
    assert len(snapshot.estimates) == 2 * 3 * len(metrics)  # no window lacks evidence
    assert len(snapshot.quantiles) == 2 * 3 * 3


def test_every_figure_is_measured() -> None:
    found = measure(services=2, repeat=1)
    assert set(found) == {
        "busy",
        "idle",
        "gzip",
        "detail",
        "page",
        "samples",
        "bytes",
        "page_bytes",
    }
    assert found["samples"] > 100


def test_the_library_is_given_the_same_samples() -> None:
    both = compare_with_the_library(filled(2, traces=40), repeat=1)  # compares name, labels, value
    assert set(both) == {"ours", "client", "samples"}
    assert both["samples"] > 400
