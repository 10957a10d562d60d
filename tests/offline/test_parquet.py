from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ragmeter.core.judging import JudgeUse, TraceJudging
from ragmeter.core.score import ScoredTrace
from ragmeter.offline.parquet import ParquetError, ParquetWriter
from ragmeter.offline.scored_lines import decode_scored_line, read_scored_lines

from tests.offline.report.test_gate import run_command
from tests.real import require_module
from tests.scored import line_of, result

LIMIT = 2**20
arrow: Any = require_module("pyarrow")
parquet: Any = require_module("pyarrow.parquet")


def scored_traces() -> list[ScoredTrace]:
    judged = {"scorer": "umbrela", "probability": 0.25, "fingerprint": "3f2a", "stratum": "low"}
    return [
        line_of(1, result("grounding", 0.5), result("error", 0.0), trace_id="a").trace,
        line_of(
            2,
            result("precision_at_k", 0.4, k=5, **judged),
            result("relevance", None, reason="judge_timeout", **judged, cheap=1.5),
            result("answered", 1.0),
            trace_id="b",
            probability=0.5,
            status="timeout",
            canary=True,
            timings={"total": 1.5},
            tags={"tenant": "acme"},
        ).trace,
        line_of(3, result("grounding", 0.1), trace_id="a").trace,  # an id that came before
    ]


def written(path: Path, traces: list[ScoredTrace]) -> Path:
    with path.open("wb") as file:
        writer = ParquetWriter(file)
        for trace in traces:
            writer.write(trace)
        writer.close()
    return path


def read(path: Path) -> list[ScoredTrace]:
    return [decode_scored_line(line, LIMIT).trace for line, _ in read_scored_lines(path, LIMIT)]


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    traces = scored_traces()
    traces[1] = traces[1]._replace(tags={"tenant": "\ud800"})  # half a character
    use = JudgeUse(calls=2, latencies=[0.5, 1.5])
    traces[1] = traces[1]._replace(judging=TraceJudging(1e9, 2.0, {"judge": use}))
    expected = [json.loads(json.dumps(one.to_dict()).replace("\\ud800", "?")) for one in traces]
    found = [one.to_dict() for one in read(written(tmp_path / "s.parquet", traces))]
    assert json.loads(json.dumps(found)) == expected
    table = parquet.read_table(tmp_path / "s.parquet")
    assert table.num_rows == 6
    assert table.column("metric").to_pylist()[2] == "precision_at_k:5"
    assert table.column("timestamp").type == arrow.timestamp("us", tz="UTC")


def test_a_table_that_pandas_has_filtered_is_read(tmp_path: Path) -> None:
    pandas = require_module("pandas")
    path = written(tmp_path / "s.parquet", scored_traces())
    frame = pandas.read_parquet(path)
    frame[frame.metric != "error"].to_parquet(tmp_path / "less.parquet")
    found = read(tmp_path / "less.parquet")
    assert [[score.metric for score in one.results] for one in found] == [
        ["grounding"],
        ["precision_at_k:5", "relevance", "answered"],
        ["grounding"],
    ]
    assert found[1].timings == {"total": 1.5}
    assert found[1].results[1].value is None


@pytest.mark.slow
def test_the_commands_read_the_same_from_either_form(tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    rows = [
        {
            "trace_id": f"t{n}",
            "service": "s",
            "timestamp": n,
            "status": "error" if n % 2 else "ok",
            "query": "Why?",
            "answer": "Because.",
            "passages": [{"id": "p", "text": "Because."}],
        }
        for n in range(30)
    ]
    traces.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reports = []
    for folder, name in (("lines", "scores.jsonl"), ("table", "scores.parquet")):
        path = tmp_path / folder / name
        path.parent.mkdir()
        assert run_command("score", str(traces), "-o", str(path)).returncode == 0
        report = run_command("report", str(path), "--format", "json")
        backtest = run_command("backtest", str(path), "--format", "json")
        reports.append((report.returncode, report.stdout, backtest.returncode, backtest.stdout))
    assert reports[0] == reports[1]
    assert reports[0][0] == reports[0][2] == 0
    assert (tmp_path / "table" / "scores.parquet").read_bytes().startswith(b"PAR1")


def test_what_is_no_table_of_scored_traces_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    parquet.write_table(arrow.table({"trace_id": ["a"], "score": [1.0]}), path)
    with pytest.raises(
        ParquetError, match=r"other\.parquet: no scored traces: without the columns"
    ):
        read(path)
    whole = written(tmp_path / "s.parquet", scored_traces()).read_bytes()
    for broken in (whole[: len(whole) // 2], whole[:4], whole[:200] + b"\xff" * 50 + whole[250:]):
        path.write_bytes(broken)
        with pytest.raises(ParquetError, match=r"other\.parquet: "):
            read(path)
    table = parquet.read_table(tmp_path / "s.parquet")
    parquet.write_table(table.sort_by("metric"), path)
    with pytest.raises(ParquetError, match="the rows of a trace are apart"):
        read(path)
    wrong = table.set_column(table.schema.get_field_index("tags"), "tags", [["{"] * 6])
    parquet.write_table(wrong, path)
    with pytest.raises(ParquetError, match="broken Parquet"):
        read(path)


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "s.parquet", scored_traces())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ParquetError, match=r"pip install '\.\[parquet\]'"):
        read(path)
    with pytest.raises(ParquetError, match=r"pip install '\.\[parquet\]'"):
        ParquetWriter(io.BytesIO())
