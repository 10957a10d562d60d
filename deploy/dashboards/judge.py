"""The judge as an instrument, what is asked of it, and what all of it costs."""

from __future__ import annotations

from deploy.dashboards import thresholds
from deploy.dashboards.bands import metric_band
from deploy.dashboards.board import Board, Row
from deploy.dashboards.now import JUDGE, instruments
from deploy.dashboards.panels import Column, Panel, columns, lines, number
from deploy.dashboards.promql import INTERVAL, RANGE, hold_last_value, of_service, rate, target
from deploy.dashboards.variables import agents, places, service, window

__all__ = ["BOARD"]

QUARTER = (6, 4)
THIRD = (8, 7)
DOWN = ("RagmeterJudgeDown", "RagmeterJudgeFailing")
FAILED = 'outcome!~"ok|cancelled"'
PROBES = 'service="_judge"'
HOUR = 3600


def _share(part: str, whole: str, over: str) -> str:
    """None of the part is a share of 0: its series come into being with the first."""
    return f"(sum(increase({part}[{over}])) or vector(0)) / sum(increase({whole}[{over}]))"


def _top() -> list[Panel]:
    calls = "ragmeter_judge_requests_total"
    cost = f"sum(rate({target('ragmeter_judge_cost_usd_total')}[{INTERVAL}])) * {HOUR}"
    return [
        number(
            "Judges",
            "Asked, or left in peace because the last calls failed (its breaker is open, and what"
            " it should judge is unscored as judge_unavailable).",
            f"min by (judge) ({hold_last_value(target('ragmeter_judge_up'))})",
            size=QUARTER, legend="{{judge}}", alerts=DOWN,
            mapped={"1": ("Asked", "green"), "0": ("Left in peace", "red")},
        ),
        number(
            "Calls that failed",
            "Of the attempts in the range shown. Retries hide failures as long as they help.",
            _share(target(calls, FAILED), target(calls, 'outcome!="cancelled"'), RANGE),
            size=QUARTER, unit="percentunit", decimals=2, alerts=DOWN,
            limits=thresholds.health("RagmeterJudgeFailing"),
        ),
        number(
            "Cost of judging per hour",
            "By the configured prices, all judges and attempts, in US dollars. Without prices it"
            " is 0.",
            cost, size=QUARTER, unit="currencyUSD", decimals=3, sparkline=True,
        ),
        number(
            "Left of the sampling rate",
            "What budget and capacity leave of the configured rate, at the service that has least."
            " Below a tenth the bands are three times as wide: raise the budget, or lower the"
            " rate.",
            f"min({hold_last_value(target('ragmeter_sampling_scale'))})",
            size=QUARTER, unit="percentunit",
            limits=thresholds.health("RagmeterSamplingScaledDown"),
        ),
    ]  # fmt: skip


def _calls() -> list[Panel]:
    flight = {
        "{{judge}} in flight": target("ragmeter_judge_in_flight"),
        "{{judge}} limit": target("ragmeter_judge_in_flight_limit"),
    }
    return [
        lines(
            "Calls per second by outcome",
            "Attempts, by how they ended. Not ok is the judge's trouble: limits, timeouts, replies"
            " that cannot be read.",
            {"{{judge}} {{outcome}}": rate("ragmeter_judge_requests_total", by="judge, outcome")},
            unit="reqps", size=THIRD, stacked=True, alerts=DOWN,
        ),
        lines(
            "Calls in flight, and how many may be",
            "The limit falls while the judge says it is overloaded, and grows again. Always at the"
            " limit: the judge is the bottleneck (judge.concurrency, or a larger judge).",
            flight, size=THIRD,
        ),
        lines(
            "Traces that wait for a judge or model",
            "Drawn and not scored yet. Beyond limits.drawn live traces are shed, and counted as"
            " such.",
            {"{{tier}}": f"sum by (tier) ({target('ragmeter_drawn_traces')})"},
            size=THIRD, alerts=["RagmeterResultsShed"],
        ),
        lines(
            "Questions by how they were answered",
            "kept: from the store of verdicts, free; shared: the same question was on its way;"
            " asked: a call.",
            {"{{source}}": rate("ragmeter_judge_verdicts_total", by="source")},
            unit="reqps", size=THIRD, stacked=True,
        ),
        lines(
            "Tokens of the judge per second",
            "Of all attempts, those that failed included.",
            {"{{judge}} {{direction}}": rate("ragmeter_judge_tokens_total", by="judge, direction")},
            size=THIRD, stacked=True,
        ),
        lines(
            "Sampling: what is left of the rate",
            "By service; 1 is all that sampling.judge and sampling.model ask for. Estimates stay"
            " right when it falls, and their bands widen.",
            {"{{tier}} {{service}}": of_service("ragmeter_sampling_scale")},
            unit="percentunit", size=THIRD, top=1,
            limits=thresholds.health("RagmeterSamplingScaledDown"),
        ),
        lines(
            "Seconds of a call",
            "The 95th percentile of the attempts that ended in a completion or a timeout, which"
            " counts as long as it was waited for.",
            {
                "{{judge}}": "histogram_quantile(0.95, sum by (judge, le) (rate("
                f"{target('ragmeter_judge_duration_seconds_bucket')}[{INTERVAL}])))"
            },
            unit="s", size=THIRD, alerts=DOWN,
        ),
        lines(
            "Of all that, for canaries",
            "Share of the calls, tokens and money that canaries take; judge.budget.canaries bounds"
            " it (0.1 by default) where there is a budget.",
            {
                "calls": _of_canaries("requests"),
                "tokens": _of_canaries("tokens"),
                "cost": _of_canaries("cost_usd"),
            },
            unit="percentunit", size=(16, 7),
        ),
    ]  # fmt: skip


def _of_canaries(what: str) -> str:
    part, whole = (target(f"ragmeter_{by}judge_{what}_total") for by in ("canary_", ""))
    return f"sum(rate({part}[{INTERVAL}])) / sum(rate({whole}[{INTERVAL}]))"


def _trust() -> list[Panel]:
    changes = f"increase({target('ragmeter_instrument_changes_total')}[{RANGE}])"
    return [
        metric_band(
            "judge_probe_agreement", "Probes: verdicts as expected",
            "The judge answers a frozen set once a day. Low: do not trust its scores at all.",
            PROBES, size=THIRD, chosen=False, services=False,
        ),
        metric_band(
            "judge_probe_change", "Probes: verdicts other than at first",
            "The same set, against its first run: the judge has changed behind its name. Scores"
            " from"
            " before and after do not compare.", PROBES, size=THIRD, chosen=False, services=False,
        ),
        metric_band(
            "judge_disagreement", "Second opinion: verdicts that differ",
            "Share of a trace's verdicts that a second judge gives otherwise. Which of the two is"
            " right"
            " it does not say.", size=THIRD, chosen=False,
        ),
        columns(
            "Judges as they are served",
            "A score carries its fingerprint; another fingerprint is another series.",
            [
                Column("Judge", label="judge", width=90),
                Column("Model asked for", label="model"),
                Column("Model served", label="served"),
                Column("Prompt", label="prompt"),
                Column("Fingerprint", label="fingerprint"),
                Column(
                    "Agents",
                    "count by (judge, model, served, system_fingerprint, prompt, fingerprint)"
                    f" ({hold_last_value(target('ragmeter_judge_info'))})",
                    decimals=0,
                    width=70,
                ),
            ],
            size=(16, 7), sort="Judge", hidden=["system_fingerprint"],
        ),
        lines(
            "Changes of an instrument",
            "A metric goes on with another fingerprint: a new model, build or prompt. Bands from"
            " before and after are two measures.",
            {"{{metric}} {{scorer}}": f"sum by (metric, scorer) ({changes})"},
            size=THIRD, alerts=["RagJudgeChanged"],
        ),
    ]  # fmt: skip


def _service_cost() -> list[Panel]:
    cost = f"sum by (service) (rate({of_service('rag_cost_usd_total')}[{INTERVAL}])) * {HOUR}"
    tokens = of_service("rag_tokens_total")
    return [
        lines(
            "Cost of the services per hour",
            "As their traces report it, in US dollars: what answering costs, not what judging"
            " costs.",
            {"{{service}}": cost}, unit="currencyUSD", size=THIRD,
        ),
        lines(
            "Tokens of the services per second",
            "As their traces report them. Input that grows alone: longer passages or histories.",
            {
                "{{service}} {{direction}}": "sum by (service, direction)"
                f" (rate({tokens}[{INTERVAL}]))"
            },
            size=THIRD,
        ),
        lines(
            "Judging against answering",
            "Cost of the judge over the cost that the services report. Above 1, measuring costs"
            " more than what is measured.",
            {
                "share": f"sum(rate({target('ragmeter_judge_cost_usd_total')}[{INTERVAL}]))"
                f" / (sum(rate({of_service('rag_cost_usd_total')}[{INTERVAL}])) > 0)"
            },
            unit="percentunit", size=THIRD,
        ),
    ]  # fmt: skip


def _cost_bands() -> list[Panel]:
    return [
        metric_band(
            "cost_usd", "Cost of one answer",
            "Mean over the window, as the traces report it, in US dollars.", size=THIRD,
            chosen=False,
        ),
        metric_band(
            "input_tokens", "Input tokens of one answer", "Mean over the window, as reported.",
            size=THIRD, chosen=False,
        ),
        metric_band(
            "output_tokens", "Output tokens of one answer", "Mean over the window, as reported.",
            size=THIRD, chosen=False,
        ),
    ]  # fmt: skip


UNSPENT = "No trace says what it used (usage: tokens, cost_usd), or no judge is configured"

BOARD = Board(
    "judge",
    "Judge and cost",
    "The judge: is it up, is it the one it was, what does it cost; and what the services cost.",
    [*agents(), service(many=False), window(), *places()],
    [
        Row("", [instruments()]),
        Row("", _top(), empty="No judge"),
        Row("Calls", _calls(), empty=JUDGE),
        Row("Can its scores be trusted", _trust(), empty=JUDGE),
        Row("Cost of the services", [*_service_cost(), *_cost_bands()], empty=UNSPENT),
    ],
)
