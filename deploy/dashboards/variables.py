"""What is chosen at the top of a dashboard."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from ragmeter.alerts.rule_sets import RUNBOOK_BASE
from ragmeter.metrics.judge_agreement import PROBE_SERVICE

from deploy.dashboards.promql import target

__all__ = ["DATASOURCE", "PAGE", "agents", "places", "question", "service"]

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
PAGE = "http://127.0.0.1:9464"
"""Where `make run` and deploy/compose.yaml show the status page; as `alerts.page_url`."""

EACH = ".+"
"""What `All` stands for: also a value that came after the list was made."""

# Probes of a judge are counted as a service of their own, which is nobody's.
NO_PROBES = f"/^(?!{PROBE_SERVICE}$).*/"

Variable = builders.QueryVariable


def agents() -> list[builders.DatasourceVariable | Variable]:
    """Data source, job and instance."""
    source = builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
    # no selector of its own: every agent has it, and nothing else
    job = _query("job", "Job", "label_values(ragmeter_build_info, job)", many=True)
    instance = _query(
        "instance",
        "Instance",
        'label_values(ragmeter_build_info{job=~"$job"}, instance)',
        many=True,
    )
    return [source, job, instance]


def service() -> Variable:
    # not rag_requests_total, which is there for a service that was never heard of
    seen = target("rag_question_events_total")
    return _query("service", "Service", f"label_values({seen}, service)").regex(NO_PROBES)


def question(names: Sequence[str]) -> builders.CustomVariable:
    """Which question the charts are about."""
    first = "grounded"
    options = [VariableOption(name == first, name, name) for name in names]
    return (
        builders.CustomVariable("question")
        .label("Question")
        .description("The question that the charts are about")
        .values(",".join(names))
        .options(options)
        .current(VariableOption(True, first, first))
    )


def places() -> list[builders.TextBoxVariable]:
    """Where links lead: neither Prometheus nor Grafana knows."""
    return [
        builders.TextBoxVariable("page")
        .label("Status page")
        .description("Base URL of ragmeter's status page, as alerts.page_url")
        .default_value(PAGE)
        .current(VariableOption(True, PAGE, PAGE)),
        builders.TextBoxVariable("runbooks")
        .label("Runbooks")
        .description("Base URL under which docs/runbooks is published, as alerts.runbook_url")
        .default_value(RUNBOOK_BASE)
        .current(VariableOption(True, RUNBOOK_BASE, RUNBOOK_BASE)),
    ]


def _query(name: str, label: str, query: str, many: bool = False) -> Variable:
    found = (
        Variable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        # with the range: a service that was there then is in the list
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )
    if many:
        found = found.multi(True).include_all(True).all_value(EACH)
        found = found.current(VariableOption(True, "All", "$__all"))
    return found
