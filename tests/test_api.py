"""The public Python API, used as docs/python.md shows it."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ragmeter
from ragmeter.core.errors import RagmeterError
from ragmeter.metrics.custom import CustomMetric
from ragmeter.metrics.registry import metric_specs

from tests.crash import RAGMETER
from tests.real import require_module
from tests.traces import START, make_trace, trace_dict

ROOT = Path(__file__).parents[1]


def write_traces(path: Path, number: int) -> Path:
    path.write_text("".join(json.dumps(trace_dict(n)) + "\n" for n in range(number)))
    return path


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_traces_and_dicts_are_scored_in_their_order() -> None:
    scored = ragmeter.score([make_trace(1), trace_dict(0), make_trace(2)])
    assert [trace.trace_id for trace in scored] == ["t1", "t0", "t2"]
    values = {(r.metric, r.scorer): r.value for r in scored[0].results}
    assert values["answered", "builtin"] == 1.0
    assert ragmeter.score(iter([])) == []


def test_the_scores_of_a_trace_are_its_own() -> None:
    first, second = ragmeter.score([make_trace(1), make_trace(1)])
    before = [score.to_dict() for score in second.results]
    for one in first.results:
        one.detail, one.value = {"changed": 1}, None
    assert [score.to_dict() for score in second.results] == before
    (third,) = ragmeter.score([make_trace(1)])
    assert [score.to_dict() for score in third.results] == before


def test_it_gives_what_the_command_writes(tmp_path: Path) -> None:
    source = write_traces(tmp_path / "traces.jsonl", 5)
    output = tmp_path / "scores.jsonl"
    subprocess.run([*RAGMETER, "score", source, "-o", output], cwd=ROOT, check=True)
    scored = ragmeter.score(lines(source))
    assert lines(output) == [t.to_dict() for t in scored]
    assert [(t.trace_id, len(t.results)) for t in ragmeter.read_scores(output)] == [
        (t.trace_id, len(t.results)) for t in scored
    ]


def test_settings_are_a_tree_a_file_or_an_object(tmp_path: Path) -> None:
    tree = {"builtin_scorers": False}
    file = tmp_path / "ragmeter.yaml"
    file.write_text("builtin_scorers: false\n")
    from ragmeter.app.settings import load_settings

    everything = {r.metric for r in ragmeter.score([make_trace()])[0].results}
    for settings in (tree, file, str(file), load_settings(file)):
        metrics = {r.metric for r in ragmeter.score([make_trace()], settings)[0].results}
        assert "grounding" not in metrics
        assert metrics < everything
    with pytest.raises(RagmeterError, match=r"judge\.nowhere"):
        ragmeter.score([make_trace()], {"judge": {"nowhere": 1}})


def test_it_works_inside_a_running_event_loop() -> None:
    async def cell() -> int:
        return len(ragmeter.score([make_trace()]))

    assert asyncio.run(cell()) == 1


def test_redaction_applies(tmp_path: Path) -> None:
    salt = {"content": "full", "redact": ["email"]}
    trace = make_trace(answer="Ask a.person@example.com about it [1].")
    (scored,) = ragmeter.score([trace], {"privacy": salt})
    assert "a.person" not in json.dumps(scored.to_dict())


def test_an_item_that_is_no_trace_is_named() -> None:
    with pytest.raises(RagmeterError, match=r"^trace 1: service: Field required") as caught:
        ragmeter.score([make_trace(), {"trace_id": "a", "timestamp": START}])
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("one", ["a.jsonl", Path("a.jsonl"), {"trace_id": "a"}, make_trace()])
def test_what_is_no_list_of_traces_is_said(one: Any) -> None:
    with pytest.raises(RagmeterError, match=rf"needed, not one {type(one).__name__}$"):
        ragmeter.score(one)


def test_an_own_metric_is_scored(install_metric: Callable[[CustomMetric], None]) -> None:
    @ragmeter.metric(
        name="short", kind="ratio", meaning="a", formula="b", needs="answer", source="c"
    )
    def short(trace: ragmeter.Trace) -> float | ragmeter.NoScore:
        return ragmeter.NoScore("no_text") if trace.answer is None else float(len(trace.answer) < 9)

    install_metric(short)
    scored = ragmeter.score([make_trace(answer="Yes [1]."), make_trace(answer=None)])
    results = [r for trace in scored for r in trace.results if r.metric == "short"]
    assert [(r.scorer, r.value, r.reason) for r in results] == [
        ("own", 1.0, None),
        ("own", None, "no_text"),
    ]


def test_scores_are_read_from_gzip_one_by_one(tmp_path: Path) -> None:
    scored = ragmeter.score([make_trace(n) for n in range(3)])
    path = tmp_path / "scores.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(json.dumps(t.to_dict()) for t in scored).encode()))
    reader = ragmeter.read_scores(str(path))
    assert next(reader).trace_id == "t0"
    assert [trace.timestamp for trace in reader] == [START + 1, START + 2]


def test_a_line_that_is_no_score_is_named(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_text(json.dumps(ragmeter.score([make_trace()])[0].to_dict()) + "\n{oops\n")
    reader = ragmeter.read_scores(path)
    next(reader)
    with pytest.raises(RagmeterError, match=r"scores\.jsonl: line 2: "):
        next(reader)
    with pytest.raises(OSError, match="nowhere"):
        next(ragmeter.read_scores(tmp_path / "nowhere"))


def test_without_pandas_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        ragmeter.read_scores(tmp_path / "scores.jsonl").to_pandas()


def test_a_data_frame_has_a_row_for_each_result(tmp_path: Path) -> None:
    require_module("pandas")
    scored = ragmeter.score([make_trace(0), make_trace(1, answer=None)])
    path = tmp_path / "scores.jsonl"
    path.write_text("\n".join(json.dumps(t.to_dict()) for t in scored))
    reader = ragmeter.read_scores(path)
    next(reader)
    frame = reader.to_pandas()
    assert len(frame) == sum(len(trace.results) for trace in scored)
    assert frame["timestamp"].iloc[0].timestamp() == START
    answered = frame[(frame.metric == "answered") & (frame.state == "scored")]
    assert answered["value"].iloc[0] == 1.0
    assert set(frame["metric"].str.partition(":")[0]) <= set(metric_specs())


def test_importing_the_package_is_light() -> None:
    code = "import sys, ragmeter; print([n for n in sys.modules if n.startswith('ragmeter.')])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


def test_the_public_names_are_listed_and_others_are_refused() -> None:
    assert set(ragmeter.__all__) <= set(dir(ragmeter))
    assert all(getattr(ragmeter, name) for name in ragmeter.__all__)
    ragmeter.score([])
    assert callable(ragmeter.score), "a subpackage must not hide the function"
    with pytest.raises(AttributeError, match="no attribute 'scores'"):
        ragmeter.scores  # noqa: B018


def test_the_example_of_the_documents_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    write_traces(tmp_path / "traces.jsonl", 3)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("t0 ")
