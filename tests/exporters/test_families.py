from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ragmeter.app.parts import PARTS
from ragmeter.metrics.registry import metric_specs
from ragmeter_exporters.families import all_families
from ragmeter_exporters.prometheus import PrometheusExporter, RefusalsCollector, process_registry

from deploy.pages import OF_THE_CLIENT, mark
from tests.exporters.fakes import FakeAgent, as_agent_view, estimate, everything
from tests.real import require
from tests.waiting import PATIENCE

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def expositions(agent: FakeAgent) -> list[str]:
    """`/metrics` and `/metrics/detail`, as the metrics port has them."""
    registry = process_registry()
    registry.register(RefusalsCollector({"metrics": {"no_token": 1}}))
    exporter = PrometheusExporter(as_agent_view(agent), registry=registry)
    return [exporter.render().decode("utf-8"), exporter.render_detail().decode("utf-8")]


def exported() -> set[str]:
    lines = [line for text in expositions(everything()) for line in text.splitlines()]
    names = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    # those of Prometheus' own client have one sentence below the tables
    return {name for name in names if not name.startswith(OF_THE_CLIENT)}


def rows(section: str) -> list[tuple[str, str]]:
    """The name in the first cell of each row of a section of the tables, and the row."""
    block = DOCS.read_text("utf-8").split(mark("names:begin"))[1].split(mark("names:end"))[0]
    block = block.split(f"### {section}\n")[1].split("\n### ")[0]
    return re.findall(r"^\| `(\w+)` (\|.*)$", block, re.MULTILINE)


def companions() -> list[str]:
    """What stands beside each gauge of quality, by the page: `rag_M_ci_lower` and so on."""
    text = DOCS.read_text("utf-8").split("\n## Names\n")[1].split(mark("names:begin"))[0]
    return re.findall(r"`rag_M(_\w+)`", text)


def documented() -> set[str]:
    names = set()
    for gauge, _ in rows("Metrics of every scorer"):
        stem = gauge.removesuffix("_mean").removesuffix("_ratio")
        names |= {gauge, *(stem + companion for companion in companions())}
    for name, row in rows("Other names"):
        if "_Q_" not in name:
            names.add(name)
            continue
        questions = re.findall(r"`(\w+)`", row.rpartition(" Q: ")[2])
        names |= {name.replace("_Q_", f"_{question}_") for question in questions}
    return names


def test_names_follow_the_conventions() -> None:
    names = [family.name for family in all_families(PARTS)]
    # the only name that a question and a metric of every scorer share, on two paths
    assert len(set(names)) == len(names) - 1
    assert names.count("rag_answered_ratio") == 2
    for family in all_families(PARTS):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)
        assert (family.type == "counter") == family.name.endswith("_total")
        assert family.help.endswith(".")
        assert not family.ours or family.name.startswith(("rag_", "ragmeter_"))
    for spec in metric_specs().values():
        assert spec.gauge in names


def test_what_is_exported_is_documented_and_the_reverse() -> None:
    assert exported() == documented()


def test_every_name_that_the_agent_counts_is_documented() -> None:
    root = DOCS.parents[1]
    text = "".join(
        path.read_text("utf-8")
        for part in ("agent", "exporters")
        for path in root.glob(f"{part}/**/*.py")
    )
    counted = set(re.findall(r'"(rag(?:meter)?_[a-z_]+_total)"', text))
    assert len(counted) > 10
    assert counted - documented() == set()


def test_exported_labels_are_the_documented_ones() -> None:
    known: dict[str, set[str]] = {}
    for family in all_families(PARTS):
        tags = {"model", "tag_service"} if family.segmented else set()
        known.setdefault(family.name, set()).update(family.labels, tags)
    agent = everything()
    agent.fake.table["bot", "", "precision_at_k:5", "umbrela@f1", "1h"] = estimate()
    text = "".join(expositions(agent))
    assert 'fingerprint="f1",k="5"' in text
    for metric in text_string_to_metric_families(text):
        for sample in metric.samples:
            name = sample.name
            if metric.type == "histogram":
                name = metric.name
            assert set(sample.labels) - {"le"} <= known[name], sample


@pytest.mark.real
@pytest.mark.parametrize("path", ["/metrics", "/metrics/detail"])
def test_promtool_finds_nothing_to_mend_but_the_quantile_label(path: str) -> None:
    promtool = require("promtool")
    exporter = PrometheusExporter(as_agent_view(everything()))
    found = subprocess.run(
        [promtool, "check", "metrics"],
        input=exporter.render() if path == "/metrics" else exporter.render_detail(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    # The design names a gauge with a `quantile` label: a summary could not carry an interval.
    allowed = re.compile(r'rag_latency_\w*seconds non-summary .* "quantile" label')
    lines = found.stderr.decode().splitlines()
    assert [line for line in lines if line.strip() and not allowed.fullmatch(line.strip())] == []
    assert found.returncode in (0, 3)  # 3: it had something to say
