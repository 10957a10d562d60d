"""A user's own metric, from a package that is built and found like any other: the one of the
documents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from ragmeter.alerts.rule_sets import load_default_rules
from ragmeter.alerts.rules import RuleError
from ragmeter.metrics.custom import CustomMetric, metric
from ragmeter.metrics.registry import OwnMetricError, metric_catalogue

from tests.crash import RAGMETER
from tests.once import made_once
from tests.ports import free_port
from tests.traces import trace_dict
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_metric"
BUILD = "from hatchling.build import build_wheel; import sys; build_wheel(sys.argv[1])"


def ragmeter(
    folder: Path, *arguments: str | Path, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RAGMETER, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        env=environment(folder),
        check=False,
    )


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as an installer leaves it."""

    def make(folder: Path) -> None:
        subprocess.run(
            [sys.executable, "-c", BUILD, folder],
            cwd=EXAMPLE,
            check=True,
            timeout=PATIENCE,
            capture_output=True,
        )
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "packages")

    return made_once(tmp_path_factory, "own-metric", make) / "packages"


@pytest.fixture
def fresh_catalogue() -> Iterator[None]:
    """Let a test load the entry points again."""
    metric_catalogue.cache_clear()
    yield
    metric_catalogue.cache_clear()
    sys.modules.pop("mine", None)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    link = "See https://help.example.com/passwords."
    changes: list[dict[str, Any]] = [
        {"answer": link},
        {"answer": "No idea."},
        {"answer": None},
        {"answer": link, "status": "error"},
        *({"answer": link} for _ in range(6)),
    ]
    path = tmp_path / "traces.jsonl"
    rows = [{**trace_dict(n), **change} for n, change in enumerate(changes)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def broken(folder: Path, code: str, point: str = "mine:mine") -> Path:
    """A package with one entry point, as installed."""
    (folder / "mine.py").write_text(code)
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ragmeter.metrics]\nmine = {point}\n")
    return folder


def test_the_example_is_in_the_list_and_shows_what_it_is(example: Path) -> None:
    done = ragmeter(example, "metrics", "list")
    assert done.returncode == 0, done.stderr
    assert "help_link" in done.stdout
    shown = ragmeter(example, "metrics", "show", "help_link").stdout
    assert "gauge:        rag_help_link_ratio" in shown
    assert "source:       our style guide, section 4" in shown
    assert "HelpLinksRare: warning if upper end < 0.5 over 1h (own)" in shown


def test_traces_are_scored_by_it_and_what_was_not_captured_is_no_0(
    example: Path, traces: Path, tmp_path: Path
) -> None:
    out = tmp_path / "scored.jsonl"
    done = ragmeter(example, "score", traces, "-o", out)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    found = [
        (one["state"], one.get("value"), one.get("reason"))
        for line in lines
        for one in line["results"]
        if (one["metric"], one["scorer"]) == ("help_link", "own")
    ]
    assert found[:4] == [
        ("scored", 1.0, None),
        ("scored", 0.0, None),
        ("unscored", None, "no_text"),
        ("not_applicable", None, "error"),
    ]
    report = ragmeter(example, "report", out)
    assert "help_link" in report.stdout, report.stderr


def test_the_running_agent_publishes_it(example: Path, traces: Path, tmp_path: Path) -> None:
    port, page = free_port(), free_port()
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        f"http: {{otlp_port: {port}, metrics_port: {page}}}\nlimits: {{min_samples: 5}}\n"
    )
    process = subprocess.Popen(
        [*RAGMETER, "run", "--config", str(settings), "--replay", str(traces)],
        cwd=tmp_path,
        env=environment(example),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    reported = b""
    while b"serving until Ctrl-C" not in reported:
        line = process.stderr.readline()
        assert line, reported
        reported += line
    pages = [f"http://127.0.0.1:{page}{path}" for path in ("/metrics", "/metrics/detail")]
    reply = "".join(httpx.get(url, timeout=PATIENCE).text for url in pages)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(reply)
        for sample in family.samples
        if "own" in sample.labels.values()
    }
    metric = ("metric", "help_link")
    scorer = ("scorer", "own")
    name = "ragmeter_results_total"
    assert found[(name, metric, scorer, ("state", "scored"))] == 8
    assert found[(name, metric, ("reason", "no_text"), scorer, ("state", "unscored"))] == 1
    gauges = {key[0]: value for key, value in found.items() if ("window", "24h") in key}
    assert gauges["rag_help_link_ratio"] == pytest.approx(7 / 8)


@pytest.mark.parametrize(
    ("code", "point", "why"),
    [
        ("1 / 0", "mine:mine", "division by zero"),
        ("raise SystemExit(0)", "mine:mine", "it ends the process"),
        ("", "mine:mine", "has no attribute 'mine'"),
        ("", "missing:mine", "No module named 'missing'"),
        ("def mine(trace): return 1.0", "mine:mine", "not a metric, but function: decorate it"),
        (
            "from ragmeter.metrics.custom import metric\n"
            "mine = metric(name='grounding', kind='mean', meaning='a', formula='b', needs='c',"
            " source='d')(lambda trace: 1.0)",
            "mine:mine",
            "there is a metric 'grounding' already",
        ),
    ],
    ids=["raises", "exits", "no_name", "no_module", "no_metric", "taken"],
)
def test_what_is_no_metric_is_named(
    tmp_path: Path,
    fresh_catalogue: None,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    point: str,
    why: str,
) -> None:
    monkeypatch.syspath_prepend(broken(tmp_path, code, point))
    with pytest.raises(OwnMetricError) as caught:
        metric_catalogue()
    assert str(caught.value).startswith(f"metric 'mine' ({point}) of mine: ")
    assert why in str(caught.value)


def test_it_ends_the_command(tmp_path: Path) -> None:
    done = ragmeter(broken(tmp_path, "1 / 0"), "metrics", "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert "metric 'mine' (mine:mine) of mine: division by zero" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"name": "RagUnscoredHigh", "severity": "warning"}, "are those of ragmeter"),
        ({"name": "Mine", "metric": "grounding"}, "brings a rule about another"),
        ({"name": "Mine", "severity": "loud"}, "severity"),
        ({"severity": "warning"}, "key name"),
    ],
)
def test_a_rule_that_it_brings_is_about_itself(
    install_metric: Callable[[CustomMetric], None], rule: Any, why: str
) -> None:
    made = metric(
        name="mine", kind="mean", meaning="a", formula="b", needs="c", source="d", rules=[rule]
    )
    install_metric(made(lambda trace: 1.0))
    with pytest.raises(RuleError, match=why):
        load_default_rules()


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    page = page[page.index("\n## Metrics of your own") :]
    project = (EXAMPLE / "pyproject.toml").read_text()
    assert '[project.entry-points."ragmeter.metrics"]\nhelp_link = "help_links:help_link"' in page
    assert (
        '[project.entry-points."ragmeter.metrics"]\nhelp_link = "help_links:help_link"' in project
    )
    code = page.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(code, "python.md", "exec"), names)
    assert names["help_link"].spec.gauge == "rag_help_link_ratio"
