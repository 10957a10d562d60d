"""Every query of the dashboard, asked of a real Prometheus that scrapes a real agent.

The agent replays and takes traffic, with a stub judge.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from deploy.dashboards.variables import PAGE
from tests.deploy.dashboard_queries import boards, choose, fill, panels, queries, run
from tests.deploy.dashboard_world import World, sample, scraped, watched
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]

BOARDS = boards()
INTERVAL = 2  # seconds between scrapes

# On a sound agent no rule fires within seconds, and nothing changes.
MAY_BE_EMPTY = frozenset(
    (
        "Incidents",
        # a source of judged questions is chosen, and a movement known, after minutes
        "Movement of the last hour",
        "Refused requests",
        "annotation Alerts",
        "annotation Incidents",
        "annotation New model, prompt or index",
        "annotation Number from another source",
    )
)
TILES = frozenset(
    ("Works", "Fast", "Answered", "Grounded", "Retrieved", "Cited", "Complete", "Cost")
)
OF_ALL_REQUESTS = frozenset(("Works", "Fast", "Answered", "Cost"))


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
    with watched(folder, interval=INTERVAL) as found:
        traces = sample()
        for _ in range(4):
            sent = [next(traces) for _ in range(70)]
            found.send(sent)
            time.sleep(1)
        # the judge comes last
        judged = "ragmeter_judge_cost_usd_total"
        until(partial(comes, found, traces, judged))
        time.sleep(3 * INTERVAL)  # rates need two scrapes
        yield found


@pytest.mark.parametrize("name", BOARDS)
def test_every_query_returns_data(world: World, name: str) -> None:
    board = BOARDS[name]
    now = time.time()
    values, options = choose(world.ask, board, span=60, interval=INTERVAL)
    values |= {"service": "mtrag-chat", "question": "works"}
    assert all(options.values()), options
    empty = []
    notified = set()
    for query in queries(name, board):
        found = run(world.ask, query, values, now - 60, now, 1)
        if query.panel in TILES | {"Where"} and found:
            notified.add(query.panel)
        elif not found and query.panel not in MAY_BE_EMPTY | TILES | {"Where"}:
            empty.append((query.panel, fill(query.expr, values)))
    assert [panel for panel, _ in empty] == [], empty
    if name == "service":  # a tile is one of three queries, by how its number stands
        assert {*OF_ALL_REQUESTS, "Where"} <= notified


def test_each_tile_has_one_number(world: World) -> None:
    board = BOARDS["service"]
    now = time.time()
    values, _ = choose(world.ask, board, span=60, interval=INTERVAL)
    values["service"] = "mtrag-chat"
    shown: dict[str, int] = dict.fromkeys(TILES, 0)
    for query in queries("service", board):
        if query.panel in TILES:
            shown[query.panel] += len(run(world.ask, query, values, now - 60, now, 1))
    assert shown.pop("Cost") == 2
    assert max(shown.values()) == 1, shown
    assert {shown[name] for name in OF_ALL_REQUESTS - {"Cost"}} == {1}, shown


def test_variables_hold_what_is_there(world: World) -> None:
    _, options = choose(world.ask, BOARDS["service"], span=60, interval=INTERVAL)
    assert {"mtrag-chat", "mtrag-unanswerable"} <= set(options["service"])
    assert "_judge" not in options["service"]


def test_exemplars_are_there_and_their_trace_opens(world: World) -> None:
    found = world.ask.get(
        "/query_exemplars",
        params={
            "query": "rag_request_duration_seconds_bucket",
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
    board = BOARDS["service"]
    values, _ = choose(world.ask, board, span=60, interval=INTERVAL)
    values["service"] = "mtrag-chat"
    links = {
        link["url"]
        for panel in panels(board)
        for link in panel["fieldConfig"]["defaults"].get("links") or []
    }
    assert {fill(link, values) for link in links} == {f"{PAGE}/service/{values['service']}"}
    assert world.opens("service", values["service"])
