"""One service: every metric in the band of its interval, beside samples and missing values."""

from __future__ import annotations

from ragmeter.metrics.registry import metric_specs

from deploy.dashboards.bands import beside, metric_band
from deploy.dashboards.board import Board, Row
from deploy.dashboards.now import JUDGE, instruments, now
from deploy.dashboards.panels import Column, Panel, columns, lines, on_page
from deploy.dashboards.promql import PLAIN, hold_last_value, of_service
from deploy.dashboards.thresholds import Line, Lines
from deploy.dashboards.variables import agents, places, scorer, service, window

__all__ = ["BOARD"]

HALF = (12, 7)
DRIFT = Lines((Line(1, "warning", above=True),))

READING = {
    "grounding": "How far the answers say what their passages say. When it falls and relevance does"
    " not, look at model and prompt; when both fall, at retrieval.",
    "answered": "Share of answers that attempt the question rather than refuse or not know. Low:"
    " the passages do not have it, or the model has become timid.",
    "citation_precision": "How well cited passages support the statements that cite them.",
    "citation_recall": "How far statements are supported by what they cite.",
    "citation_f1": "Balance of citation precision and recall.",
    "citation_presence": "Share of answers that cite at least once. A jump: prompt or model"
    " changed.",
    "citation_fabricated": "Share of citing answers with a citation that resolves to no passage.",
    "empty_answer": "Share of successful requests whose answer has no text.",
    "nugget_vital": "Share of the vital facts of the passages that the answer holds, by a judge.",
    "nugget_all": "Share of all facts of the passages that the answer holds, by a judge.",
    "faithfulness": "Share of the answer's claims that the passages support, by a judge that is"
    " asked for claims. The page of a trace lists them.",
    "groundedness": "Share of the facts found for the query that the answer uses, by a judge that"
    " is asked for facts. Low and faithful: the answer is thin, not wrong.",
    "context_relevancy": "Mean relevance of the retrieved passages, by a judge that is asked for"
    " context. It falls, too, where more passages are retrieved than are of use.",
    "answer_correctness": "How far answers to canaries are the right ones, in meaning, facts and"
    " completeness.",
    "fact_checks": "Share of the fact checks that answers to canaries pass. The page names those"
    " that failed.",
    "canary_failed": "Share of canaries that got no answer: an error, or none in time.",
}
JUDGED = ("nugget_vital", "nugget_all")
ASKED_FOR = (("faithfulness", "groundedness"), ("context_relevancy", "answer_correctness"))
OF_CANARIES = ("fact_checks", "canary_failed")


def _beside(name: str) -> list[Panel]:
    """A metric with what it rests on."""
    title = name.replace("_", " ").capitalize()
    return [metric_band(name, title, READING[name], size=(10, 7)), *beside(name)]


def _pair(*names: str) -> list[Panel]:
    return [
        metric_band(name, name.replace("_", " ").capitalize(), READING[name], size=HALF)
        for name in names
    ]


def _segments() -> Panel:
    """The series that `whole` leaves out."""
    names = "rag_(grounding|answered|relevance|citation_precision|error)"

    def of(end: str) -> str:
        series = of_service(
            "", f'__name__=~"{names}_{end}"', 'window="$window"', 'scorer=~"$scorer"'
        )
        held = hold_last_value(series)
        name = f'label_replace({held}, "metric", "$1", "__name__", "rag_(.+)_{end}")'
        return f"max without (job, __name__) ({name} unless {PLAIN})"

    return columns(
        "Segments",
        "The same numbers for each value of the configured segment tags (`segments`). Where one"
        " segment stands out and the others do not, the cause is there: a model, a prompt version,"
        " a tenant. Compare intervals, not estimates.",
        [
            Column("Metric", label="metric"),
            Column("Scorer", label="scorer"),
            Column("Estimate", of("(?:mean|ratio)"), decimals=3),
            Column("95 % from", of("ci_lower"), decimals=3),
            Column("to", of("ci_upper"), decimals=3),
            Column("Samples", of("effective_samples"), decimals=0),
        ],
        size=(14, 8),
        sort="Metric",
        hidden=["service", "window"],
    )


def _drift() -> Panel:
    return lines(
        "Drift: distance from the baseline",
        "Statistic of each detector over its threshold; at 1 it raises RagDrift, or"
        " RagJudgeChanged where the judge is the cause. The status page says since when, from what"
        " to what, and in which segment. Nothing before the baseline is learnt.",
        {"{{metric}} {{scorer}} ({{kind}})": of_service("ragmeter_drift_statistic")},
        size=(10, 8),
        limits=DRIFT,
        alerts=["RagDrift", "RagJudgeChanged"],
        links=[on_page()],
    )


CITED = "Nothing: no answer with citations in this window, or too few"
ASIDE = {"judge_disagreement", "judge_probe_agreement", "judge_probe_change"}

BOARD = Board(
    "quality",
    "Quality",
    "One service: each metric in the band of its 95 % interval, the samples behind it, and why"
    " results are missing.",
    [*agents(), service(many=False), window(), scorer(), *places()],
    [
        Row(
            "",
            [
                instruments(),
                now(
                    "Every metric now",
                    "Estimate, 95 % interval, samples and the share of traces without a value, by"
                    " scorer. Scores of two scorers are two measures and never averaged. A metric"
                    " that is missing has too few samples in the window.",
                    [name for name in metric_specs() if name not in ASIDE],
                    size=(24, 9),
                    services=False,
                ),
            ],
        ),
        Row("Grounding", _beside("grounding")),
        Row("Answered", _beside("answered")),
        Row("Support by citations", _beside("citation_precision"), empty=CITED),
        Row(
            "More on citations",
            [
                *_pair("citation_recall", "citation_fabricated"),
                *_pair("citation_presence", "empty_answer"),
            ],
            empty=CITED,
        ),
        Row("Drift and segments", [_drift(), _segments()]),
        Row("With a judge: facts in the answers", _pair(*JUDGED), empty=JUDGE, folded=True),
        Row(
            "With a judge that is asked for them (judge.metrics): claims, context, canaries",
            [*_pair(*ASKED_FOR[0]), *_pair(*ASKED_FOR[1])],
            empty="No judge is asked for this (judge.metrics)",
            folded=True,
        ),
        Row(
            "With canaries",
            _pair(*OF_CANARIES),
            empty="No canary was asked (ragmeter canary run)",
            folded=True,
        ),
    ],
)
