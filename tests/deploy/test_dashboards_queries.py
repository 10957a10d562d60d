"""Every query of every dashboard, asked of a real Prometheus that scrapes a real agent.

The agent replays and takes traffic, with a stub judge, a second one, probes, redaction, a resolver
and results that are exported. Beside it stands what a real worker on Kafka exported once
(tests/data/worker-metrics.txt.gz; `python -m tests.deploy.pictures --record` writes it anew).
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from deploy.dashboards.variables import PAGE
from tests.deploy.dashboard_queries import boards, choose, fill, panels, queries, run
from tests.deploy.dashboard_world import World, sample, scraped, watched
from tests.deploy.tools import ROOT
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]

WORKER = ROOT / "tests" / "data" / "worker-metrics.txt.gz"
BOARDS = boards()
INTERVAL = 2  # seconds between scrapes

# (dashboard, panel): why there may be nothing to see on a sound agent.
MAY_BE_EMPTY = {
    ("*", "annotation Alerts"): "no rule fires on a sound agent within seconds",
    ("quality", "Drift: distance from the baseline"): "no statistic before the baseline is learnt",
    ("agent", "Feedback that waits, traces it can join"): "born with the first that was shed",
    ("judge", "Changes of an instrument"): "the counter is born with the first change",
    ("agent", "Redaction"): "failures: that counter is born with the first one",
    ("agent", "Kafka lag, by topic, and unexpected results"): "no worker here; born with the first",
    ("agent", "Lost to retention, by topic"): "born with the first loss",
}


def comes(world: World, traces: Iterator[dict[str, Any]], query: str) -> bool:
    """Whether it is there; more traffic where it is not: a few traces in a hundred have it."""
    if scraped(world, query):
        return True
    world.send([next(traces) for _ in range(20)])
    time.sleep(1)
    return False


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with watched(folder, interval=INTERVAL, recorded=gzip.decompress(WORKER.read_bytes())) as found:
        traces = sample()
        for _ in range(4):
            sent = [next(traces) for _ in range(70)]
            found.send(sent)
            found.spoken_of([trace for trace in sent if "reference" not in trace])
            found.spans()
            time.sleep(1)
        # what comes last: second opinions, ranks down to k, probes that ran twice
        for name in (
            'rag_judge_disagreement_mean{service="mtrag-chat"}',
            'rag_precision_at_k_mean{service="mtrag-chat"}',
            "rag_judge_probe_change_mean",
        ):
            until(partial(comes, found, traces, name))
        time.sleep(3 * INTERVAL)  # rates need two scrapes
        yield found


@pytest.mark.parametrize("name", BOARDS)
def test_every_query_returns_data(world: World, name: str) -> None:
    board, now = BOARDS[name], time.time()
    values, options = choose(world.ask, board, span=60, interval=INTERVAL)
    assert all(options.values()), options
    empty = []
    for query in queries(name, board):
        found = run(world.ask, query, values, now - 60, now, 1)
        places = {(name, query.panel), ("*", query.panel)}
        if not found and not places & set(MAY_BE_EMPTY):
            empty.append((query.panel, fill(query.expr, values)))
    assert [panel for panel, _ in empty] == [], empty


def test_what_may_be_empty_is_there() -> None:
    known = {
        (name, query.panel) for name, board in BOARDS.items() for query in queries(name, board)
    }
    for board, panel in MAY_BE_EMPTY:
        assert (board, panel) in known or (board == "*" and panel in {one for _, one in known})


def test_variables_hold_what_is_there(world: World) -> None:
    values, options = choose(world.ask, BOARDS["quality"], span=60, interval=INTERVAL)
    assert {"mtrag-chat", "mtrag-unanswerable"} <= set(options["service"])
    assert "_judge" not in options["service"]
    assert options["window"] == ["1h", "24h", "5m"]
    assert values["window"] == "1h"
    assert {"builtin", "umbrela", "judge", "autonuggetizer"} <= set(options["scorer"])


def test_segments_are_left_out_of_whole_services_and_shown_on_their_own(world: World) -> None:
    board, now = BOARDS["quality"], time.time()
    values, _ = choose(world.ask, board, span=60, interval=INTERVAL)
    values["service"] = "mtrag-chat"
    (whole, *_) = [one for one in queries("quality", board) if one.panel == "Grounding"]
    of_segments = 'rag_grounding_mean{service="mtrag-chat",model!="",window="1h"}'
    until(lambda: scraped(world, of_segments) != "")
    for series in run(world.ask, whole, values, now - 5, now, 1):
        assert "model" not in series["metric"]
    segments = [one for one in queries("quality", board) if one.panel == "Segments"]
    assert len(segments) == 4
    for query in segments:
        found = run(world.ask, query, values, now - 5, now, 1)
        assert found
        assert all(series["metric"].get("model") for series in found)


def test_exemplars_are_there_and_their_trace_opens(world: World) -> None:
    found = world.ask.get(
        "/query_exemplars",
        params={
            "query": "rag_trace_duration_seconds_bucket",
            "start": time.time() - 300,
            "end": time.time() + 5,
        },
    ).json()["data"]
    ids = [
        (series["seriesLabels"]["service"], one["labels"]["trace_id"])
        for series in found
        for one in series["exemplars"]
    ]
    assert ids
    assert any(world.opens("trace", service, trace) for service, trace in ids)


def test_links_of_panels_open(world: World) -> None:
    """`fill` leaves the format of a variable out; these values need none."""
    board = BOARDS["quality"]
    values, _ = choose(world.ask, board, span=60, interval=INTERVAL)
    links = {
        link["url"]
        for panel in panels(board)
        for link in panel["fieldConfig"]["defaults"].get("links") or []
    }
    assert {fill(link, values) for link in links} == {f"{PAGE}/service/{values['service']}"}
    assert world.opens("service", values["service"])
