"""The eight questions of one service, with one number each."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import dashboard as builders

from deploy.dashboards.bands import LOWER, UPPER, band
from deploy.dashboards.board import Board
from deploy.dashboards.panels import (
    Column,
    Panel,
    columns,
    lines,
    link,
    mark,
    on_page,
    tile,
)
from deploy.dashboards.promql import INTERVAL, of_service
from deploy.dashboards.questions import CHOSEN, SHARES, Number, chosen, every, share
from deploy.dashboards.variables import agents, places, question, service

__all__ = ["BOARD"]

MEANINGS: Mapping[str, str] = {
    "works": "Share of the requests that were answered without error, timeout or empty answer.",
    "answered": "Share of the questions that were not refused.",
    "grounded": "Share of the answers that their passages support.",
    "retrieved": "Share of the questions with a passage that answers them.",
    "cited": "Share of the citations that support their statement.",
    "complete": "Share of the vital facts that the answers hold.",
}
TILE = (3, 4)
READ = (
    "Below it is the window that it is about: the shortest in which it is known well enough."
    " Red: the goal is missed, even by the kind end of the 95 % interval. Green: it is not. No"
    " colour: there is no goal (setting `goals`)."
)
UNKNOWN = "not enough yet"
CHANGE_TAGS = ("model", "prompt_version", "index_version")


WHY = link("Why, on the status page", "${page}/incident/${service:percentencode}/${__value.text}")


def _incidents() -> Panel:
    opened = of_service("rag_incident_open")
    by = "by (incident, severity)"
    return columns(
        "Incidents",
        "What people are told of now, and for how long it was open within the last day. The status"
        " page says what is wrong, since when, what changed then, and shows the worst questions.",
        [
            Column("Incident", label="incident", links=(WHY, on_page())),
            Column("Severity", label="severity", width=120),
            Column(
                "Open in the last day",
                f"max {by} (sum_over_time({opened}[1d:1m]) * 60) and max {by} ({opened})",
                unit="s",
                width=180,
            ),
        ],
        size=(24, 4),
        sort="Severity",
    ).no_value("No incident is open")


def _share(name: str) -> Panel:
    found = tile(
        name.capitalize(),
        f"{MEANINGS[name]} {READ}",
        share(name).by_goal(),
        unit="percentunit",
        size=TILE,
        decimals=0,
    )
    return found.no_value(UNKNOWN)


def _fast() -> Panel:
    good, events = (
        f"sum by (service) (increase({of_service(f'rag_question_{end}_total', FAST)}[1h]))"
        for end in ("good", "events")
    )
    found = tile(
        "Fast",
        "p95 of the total time: nineteen of twenty requests were faster. Below it is the window"
        " that it is about. Red: in the last hour more than 5 % of the requests took longer than"
        " the goal (setting `goals`). Green: they did not.",
        Number(
            of_service("rag_latency_seconds", 'stage="total"', 'quantile="0.95"'),
            "fast",
            missed=f"{good} / {events} < 0.95",
            goal=events,
        ).by_goal(),
        unit="s",
        size=TILE,
        decimals=1,
    )
    return found.no_value(UNKNOWN)


FAST = 'question="fast"'


def _cost() -> Panel:
    day = f"sum(increase({of_service('rag_cost_usd_total')}[1d]))"
    value = Number(of_service("rag_cost_per_answer_usd"), "cost").by_goal()["plain"]
    found = tile(
        "Cost",
        "What 1,000 answers cost in US dollars, and what was spent within the last day, both as the"
        " requests report it. What the judge costs stands on the board of ragmeter itself.",
        {"1,000 answers": f"1000 * ({value})", "a day": day},
        unit="currencyUSD",
        size=TILE,
        decimals=2,
    )
    return found.no_value(UNKNOWN)


def _over_time() -> Panel:
    rests_on = of_service("rag_question_source_info", f'question="{CHOSEN}"')

    def of(calculation: str, gauge: str) -> str:
        return f"{calculation} ({chosen(gauge)} and on (service, window) {rests_on})"

    return band(
        f"Over time: {CHOSEN}",
        "The number of the question that is chosen at the top, with its usual (what it was in the"
        " seven days before) and its goal. Vertical lines are incidents and changes: a new model,"
        " prompt_version or index_version, or another source of the number.",
        {
            CHOSEN: of("avg by (service)", "ratio"),
            UPPER: of("max by (service)", "upper_ratio"),
            LOWER: of("min by (service)", "lower_ratio"),
            "usual": f"avg by (service) ({chosen('usual_ratio')})",
            "goal": f"max by (service) ({chosen('goal_ratio')})",
        },
        unit="percentunit",
        size=(15, 9),
        colours={CHOSEN: "blue", "usual": "text", "goal": "red"},
        dashed=("usual", "goal"),
    )


def _movement() -> Panel:
    hour = 'window="1h"'
    return band(
        "Movement of the last hour",
        f"How far the last hour is from the usual, in points (hundredths), by what every request"
        f" tells; below 0 is worse. The band is that of {CHOSEN}: as long as it holds 0, the"
        " movement may be chance.",
        {
            "{{question}}": f"avg by (question) ({every('change_points', hour)})",
            UPPER: f"max by (service) ({chosen('change_upper_points', hour)})",
            LOWER: f"min by (service) ({chosen('change_lower_points', hour)})",
        },
        unit="none",
        size=(9, 9),
        decimals=1,
        alerts=("RagDrift",),
        colours={},
    )


def _segments() -> Panel:
    return columns(
        "Where",
        "The numbers by the tags that are segments (setting `segments`), over the last day. What is"
        " empty is not known well enough.",
        [
            Column("Tag", label="tag"),
            Column("Value", label="value"),
            *(
                Column(
                    name.capitalize(),
                    f"avg by (tag, value) ({_segment(name)})",
                    unit="percentunit",
                    decimals=0,
                )
                for name in SHARES
            ),
        ],
        size=(10, 8),
        sort="Tag",
    ).no_value(UNKNOWN)


def _segment(name: str) -> str:
    return of_service("rag_segment_ratio", f'question="{name}"')


def _budget() -> Panel:
    good, events = (
        f"sum by (question) (increase({of_service(f'rag_question_{end}_total')}[30d]))"
        for end in ("good", "events")
    )
    # the goal of `fast` is one of nineteen requests of twenty
    nineteen = f"group by (question) ({of_service('rag_question_events_total', FAST)}) * 0.95"
    goals = f"(max by (question) ({every('goal_ratio')}) or {nineteen})"
    return columns(
        "Error budget of 30 days",
        "For each question with a goal: its share over thirty days, or as long as Prometheus"
        " remembers, the goal, and what is left of the misses that the goal allows. Below 0 the"
        " goal is missed. `fast` counts requests within the goal, of which 95 % must be.",
        [
            Column("Question", label="question"),
            Column("30 days", f"({good} / {events}) and {goals}", "percentunit", 1),
            Column("Goal", f"{goals} and ({good} / {events})", "percentunit", 1),
            Column("Left", f"1 - (1 - {good} / {events}) / (1 - {goals})", "percentunit", 0),
        ],
        size=(7, 8),
        sort="Question",
    ).no_value("No question has a goal")


def _slow() -> Panel:
    buckets = f"rate({of_service('rag_request_duration_seconds_bucket')}[{INTERVAL}])"
    return lines(
        "Single slow requests",
        "p95 of the moment, estimated from the histogram; the points are single requests"
        " (exemplars). Click one: its trace opens on the status page while it is kept there.",
        {"p95": f"histogram_quantile(0.95, sum by (le) ({buckets}))"},
        unit="s",
        size=(7, 8),
        exemplars=True,
        links=[on_page()],
        colours={"p95": "blue"},
    )


def _annotations() -> list[builders.AnnotationQuery]:
    segments = of_service(
        "rag_segment_ratio", 'question="works"', f'tag=~"{"|".join(CHANGE_TAGS)}"'
    )
    sources = "group by (question, source)"
    source = of_service("rag_question_source_info")
    return [
        mark(
            "Incidents",
            "red",
            f"max by (incident, severity) ({of_service('rag_incident_open')})",
        ),
        mark(
            "New model, prompt or index",
            "purple",
            # a value that was not there within the day before, of a tag that was
            f"group by (tag, value) ({segments})"
            f" unless group by (tag, value) (last_over_time({segments}[1d] offset 10m))"
            f" and on (tag) group by (tag) ({segments} offset 10m)",
        ),
        mark(
            "Number from another source",
            "yellow",
            f"{sources} ({source})"
            f" unless {sources} (last_over_time({source}[1d] offset 10m))"
            f" and on (question) group by (question) (last_over_time({source}[1d] offset 10m))",
        ),
    ]


BOARD = Board(
    "service",
    "RAG service",
    "One service: its incidents, eight questions with one number each, and where they move.",
    [*agents(), service(), question(SHARES), *places()],
    [
        _incidents(),
        _share("works"),
        _fast(),
        *(_share(name) for name in SHARES[1:]),
        _cost(),
        _over_time(),
        _movement(),
        _segments(),
        _budget(),
        _slow(),
    ],
    _annotations(),
)
