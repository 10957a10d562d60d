"""One service: what was retrieved, in which order, how fast, and whether its text was there."""

from __future__ import annotations

from deploy.dashboards.bands import beside, latency_band, metric_band
from deploy.dashboards.board import Board, Row
from deploy.dashboards.now import JUDGE, instruments
from deploy.dashboards.panels import Panel, lines
from deploy.dashboards.promql import INTERVAL, target
from deploy.dashboards.variables import agents, cutoff, places, scorer, service, window

__all__ = ["BOARD"]

RANKED = {
    "precision_at_k": ("Precision at k", "Share of relevant passages among the first k."),
    "ndcg_at_k": (
        "nDCG at k",
        "How near the order of the first k comes to the best order of what was retrieved. Low with"
        " good precision: the ranker, not the index.",
    ),
    "average_precision_at_k": (
        "Average precision at k",
        "How early the relevant passages among the first k stand.",
    ),
}
MISSING = "no_text|passages_id_only|passages_truncated|no_passages_captured|content_hidden"


def _ranked(name: str, size: tuple[int, int]) -> Panel:
    title, text = RANKED[name]
    return metric_band(
        name, title, f"{text} By the judge's grades, 2 or better being relevant.", 'k="$k"',
        size=size, chosen=False,
    )  # fmt: skip


def _texts() -> list[Panel]:
    missing = target("ragmeter_results_total", 'metric="relevance"', f'reason=~"{MISSING}"')
    asked = target("ragmeter_resolver_requests_total")
    return [
        lines(
            "Relevance not scored for want of text",
            "Results by reason, of all services of the agent. Passages came without text, or not"
            " at all: send texts, or configure a resolver (docs/traces.md).",
            {"{{reason}}": f"sum by (reason) (increase({missing}[{INTERVAL}]))"},
            stacked=True,
        ),
        lines(
            "Resolvers: texts asked for",
            "Passages that came as ids are looked up, by how that ended. Anything but hit and"
            " found leaves a passage without its text.",
            {"{{resolver}} {{outcome}}": f"sum by (resolver, outcome) (rate({asked}[{INTERVAL}]))"},
            unit="reqps",
            stacked=True,
        ),
        lines(
            "Traces that wait for texts",
            "Accepted, and held until their passages are looked up. It grows when a resolver is"
            " slow or away; nothing is lost.",
            {"{{instance}}": target("ragmeter_held_traces")},
        ),
    ]


HALF = (12, 7)

BOARD = Board(
    "retrieval",
    "Retrieval",
    "One service: relevance and order of what was retrieved, each in its interval, and latency.",
    [*agents(), service(many=False), window(), scorer(), cutoff(), *places()],
    [
        Row("", [instruments()]),
        Row(
            "Relevance",
            [
                metric_band(
                    "relevance",
                    "Relevance of the passages",
                    "Mean grade of what was retrieved, 0 (off topic) to 3 (answers the query)."
                    " When it falls: index, embedding, filters, or another kind of question.",
                    size=(10, 7),
                ),
                *beside("relevance"),
            ],
        ),
        Row(
            "Speed",
            [
                latency_band(
                    "retrieval",
                    "Latency of retrieval",
                    "Half and 95 % of the requests were faster in this stage.",
                    0.5,
                    0.95,
                    size=(12, 7),
                ),
                latency_band(
                    "total",
                    "Latency of the whole request",
                    "Against it, retrieval shows whether the time goes into searching or writing.",
                    0.5,
                    0.95,
                    size=(12, 7),
                ),
            ],
        ),
        Row(
            "Texts of the passages", _texts(), empty="Nothing: no text was missing, or no resolver"
        ),
        Row(
            "With a judge: order of the passages",
            [
                _ranked("precision_at_k", HALF),
                _ranked("ndcg_at_k", HALF),
                _ranked("average_precision_at_k", HALF),
                metric_band(
                    "reciprocal_rank",
                    "Reciprocal rank",
                    "One over the place of the first relevant passage: 1 is the first, 0.5 the"
                    " second.",
                    size=HALF,
                    chosen=False,
                ),
            ],
            empty=JUDGE,
            folded=True,
        ),
    ],
)
