"""How ragmeter itself is: what it takes in, what waits, what is lost, what it costs."""

from __future__ import annotations

from deploy.dashboards.board import Board
from deploy.dashboards.panels import Panel, lines, mark, number
from deploy.dashboards.promql import INTERVAL, target
from deploy.dashboards.variables import agents, places

__all__ = ["BOARD"]

NONE_YET = "None"


def _rate(name: str, by: str, *matchers: str) -> str:
    return f"sum by ({by}) (rate({target(name, *matchers)}[{INTERVAL}]))"


def _now() -> list[Panel]:
    without = target("ragmeter_results_total", 'state="unscored"')
    owed = target("ragmeter_results_total", 'state=~"scored|unscored|shed"')
    return [
        number(
            "Agents not ready",
            "An agent that is not ready says why at /readyz; its services' numbers stand still.",
            f"count({target('ragmeter_ready')} == 0) or vector(0)",
            red_from=1,
            alerts=["RagmeterNotReady", "RagmeterDown", "RagmeterAbsent"],
        ),
        number(
            "Waiting",
            "Accepted traces that wait to be scored; of a worker on Kafka, messages that are not"
            " committed. It grows when more comes in than is scored.",
            f"sum({target('ragmeter_queue_depth')})",
            sparkline=True,
        ),
        number(
            "Lag",
            "For how long the oldest trace waits; of a worker on Kafka, the oldest message that it"
            " has read. As late are the numbers.",
            f"max({target('ragmeter_oldest_unprocessed_seconds')}"
            f" or {target('ragmeter_kafka_lag_seconds')})",
            unit="s",
            decimals=1,
            sparkline=True,
            alerts=["RagmeterLagging", "RagmeterStalled", "RagmeterKafkaLagging"],
        ),
        number(
            "Results without a value",
            "Share of the results of the last hour that should have a value and have none. Why:"
            " the chart of reasons.",
            f"sum(increase({without}[1h])) / sum(increase({owed}[1h]))",
            unit="percentunit",
            decimals=2,
        ),
        number(
            "Judge, a day",
            "What the judges cost in the last day in US dollars, by the prices in the settings.",
            f"sum(increase({target('ragmeter_judge_cost_usd_total')}[1d]))",
            unit="currencyUSD",
            decimals=2,
        ).no_value("no judge"),
        number(
            "Judges not asked",
            "A judge whose breaker is open is not asked: its calls have failed one after another.",
            f"count({target('ragmeter_judge_up')} == 0) or vector(0)",
            red_from=1,
            alerts=["RagmeterJudgeDown"],
        ),
    ]


def _charts() -> list[Panel]:
    return [
        lines(
            "Traces per second",
            "Readable traces that came in, duplicates included, by where from.",
            {"{{source}}": _rate("ragmeter_traces_received_total", "source")},
            unit="reqps",
            stacked=True,
        ),
        lines(
            "Results by state",
            "Every trace ends in one state for each metric and scorer. `shed` is what an overloaded"
            " agent has let go, allowed for in the weights; `late` came after its time.",
            {"{{state}}": _rate("ragmeter_results_total", "state")},
            unit="cps",
            stacked=True,
            alerts=["RagmeterResultsShed", "RagmeterTracesLate"],
        ),
        lines(
            "Why results have no value",
            "Results that should have a value and have none, by reason and scorer.",
            {
                "{{scorer}}: {{reason}}": _rate(
                    "ragmeter_results_total", "scorer, reason", 'state="unscored"'
                )
            },
            unit="cps",
        ).no_value(NONE_YET),
        lines(
            "Judge: attempts by outcome",
            "Calls of judges by how they ended, those for canaries included.",
            {"{{judge}}: {{outcome}}": _rate("ragmeter_judge_requests_total", "judge, outcome")},
            unit="reqps",
            alerts=["RagmeterJudgeFailing"],
        ).no_value(NONE_YET),
        lines(
            "Judge: cost a day",
            "Cost of judges within the day before, by the prices in the settings.",
            {
                "{{judge}}": "sum by (judge)"
                f" (increase({target('ragmeter_judge_cost_usd_total')}[1d]))"
            },
            unit="currencyUSD",
            decimals=2,
        ).no_value("no judge"),
        lines(
            "What the budget leaves",
            "What budget, capacity and queue leave of the sampling rate that is set: below 100 %"
            " fewer traces are judged than you asked for, and intervals are wider.",
            {"{{tier}}": f"min by (tier) ({target('ragmeter_sampling_scale')})"},
            unit="percentunit",
            top=1,
            alerts=["RagmeterSamplingScaledDown"],
        ),
        lines(
            "Dead letters",
            "Messages and requests that could not be read, by reason."
            " Those of files and Kafka are kept.",
            {"{{reason}}": _rate("ragmeter_dead_letters_total", "reason")},
            unit="cps",
            alerts=["RagmeterDeadLetters", "RagmeterDeadLettersHigh"],
        ).no_value(NONE_YET),
        lines(
            "Refused requests",
            "Requests and connections that a port refused, by port and reason.",
            {"{{port}}: {{reason}}": _rate("ragmeter_http_refused_total", "port, reason")},
            unit="reqps",
        ).no_value(NONE_YET),
        lines(
            "Waiting, by agent",
            "Accepted traces that wait to be scored, by agent.",
            {"{{instance}}": f"sum by (instance) ({target('ragmeter_queue_depth')})"},
        ),
        lines(
            "CPU",
            "Processor seconds a second of the agent, 1 is one core.",
            {"{{instance}}": _rate("process_cpu_seconds_total", "instance")},
            size=(12, 7),
        ),
        lines(
            "Memory",
            "Resident memory of the agent, in bytes, its model included.",
            {"{{instance}}": f"max by (instance) ({target('process_resident_memory_bytes')})"},
            unit="bytes",
            size=(12, 7),
        ),
    ]


BOARD = Board(
    "itself",
    "ragmeter itself",
    "The health of the agents and workers: what waits, what is lost, what judges cost.",
    [*agents(), *places()],
    [*_now(), *_charts()],
    [
        mark(
            "Alerts",
            "red",
            'ALERTS{job=~"$job",instance=~"$instance",alertname=~"Ragmeter.+",alertstate="firing"}',
        )
    ],
)
