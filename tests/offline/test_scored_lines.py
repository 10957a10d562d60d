from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from ragmeter.core.score import Score, ScoreState
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.offline.scored_lines import InvalidScoredLine, decode_scored_line, read_scored_lines
from ragmeter.scoring.scorer import summarise_trace

from tests.scored import line_dict, line_of, result
from tests.tables import each_row
from tests.traces import make_trace

LIMIT = 2**20


def test_what_score_writes_is_read_back_whole() -> None:
    trace = make_trace(
        3, status="timeout", sampling={"probability": 0.25}, model="m", tags={"tenant": "a"}
    )
    prepared = PreparedTrace(trace)
    results = [*score_cheap(prepared), *score_builtin(prepared)]
    scored = summarise_trace(trace, results)
    results.append(
        Score(
            "precision_at_k:5",
            "umbrela",
            ScoreState.SCORED,
            0.5,
            None,
            0.05,
            None,
            "3f2a",
            "low",
            0.4,
        )
    )
    results.append(
        Score(
            "ndcg_at_k:5",
            "umbrela",
            ScoreState.SAMPLED_OUT,
            None,
            None,
            0.05,
            None,
            None,
            "low",
            0.4,
        )
    )
    found = decode_scored_line(json.dumps(scored.to_dict()).encode(), LIMIT)
    # only an agent joins labels of passages by their hashes: a line leaves them out
    assert found.trace == scored._replace(passages=None)
    assert (found.unknown, found.invalid) == (0, 0)


def test_a_result_that_does_not_say_has_the_probability_of_its_trace() -> None:
    line = line_of(0, result("error", 1), result("timeout", 1, probability=0.5), probability=0.1)
    assert [score.probability for score in line.trace.results] == [0.1, 0.5]


@each_row(
    "item",
    [
        result("nonsense", 1),
        result("error", 1, scorer="umbrela"),
        result("error", 1, k=5),
        result("precision_at_k", 1, scorer="umbrela"),
        result("precision_at_k", 1, scorer="umbrela", k=10**30),
        result("precision_at_k", 1, scorer="umbrela", k=True),
        result("precision_at_k:5", 1, scorer="umbrela"),
        result("error", 1, scorer="builtin@x"),
    ],
)
def test_what_nobody_knows_is_left_out_and_counted(item: dict[str, Any]) -> None:
    line = line_of(0, item, result("error", 1))
    assert line.unknown == 1
    assert [score.metric for score in line.trace.results] == ["error"]


@each_row(
    "more",
    [
        {"value": float("nan")},
        {"value": float("inf")},
        {"value": 10**400},
        {"value": 7},
        {"value": -0.1},
        {"value": "1"},
        {"value": True},
        {"value": None},
        {"value": [1]},
        {"probability": 0},
        {"probability": 1.1},
        {"probability": "1"},
        {"probability": float("nan")},
    ],
)
def test_a_value_that_is_none_is_unscored_and_counted(more: dict[str, Any]) -> None:
    line = line_of(0, {**result("error", 1), **more})
    (score,) = line.trace.results
    assert (score.state, score.value, score.reason) == (ScoreState.UNSCORED, None, "invalid_value")
    assert line.invalid == 1


def test_a_huge_value_of_an_unbounded_metric_is_unscored() -> None:
    line = line_of(0, result("input_tokens", 1e16), result("output_tokens", 1e14))
    assert [score.state for score in line.trace.results] == [ScoreState.UNSCORED, ScoreState.SCORED]


def test_a_pair_counts_once_a_trace() -> None:
    line = line_of(0, result("error", 1), result("error", 0))
    assert [score.value for score in line.trace.results] == [1]


@each_row(
    ("text", "why"),
    [
        (b"{oops", "Invalid JSON"),
        (b"[]", "object"),
        (b"\xff{}", "Invalid JSON"),
        (b'{"trace_id":"a","service":"b","timestamp":0}', "ragmeter score"),
        (b'{"trace_id":"","service":"b","timestamp":0,"results":[]}', "trace_id"),
        (b'{"trace_id":"\\ud800","service":"b","timestamp":0,"results":[]}', "Invalid JSON"),
        (b'{"trace_id":"a","service":"b","timestamp":"soon","results":[]}', "timestamp"),
        (b'{"trace_id":"a","service":"b","timestamp":1e300,"results":[]}', "timestamp"),
        (b'{"trace_id":"a","service":"b","timestamp":0,"results":[1]}', "results.0"),
        (b'{"trace_id":"a","service":"b","timestamp":0,"results":[{}]}', "metric and scorer"),
        (
            b'{"trace_id":"a","service":"b","timestamp":0,"results":'
            b'[{"metric":"error","scorer":"builtin","state":"fine"}]}',
            "state is one of",
        ),
        (b'{"trace_id":"a","service":"b","timestamp":0,"results":[],"status":"bad"}', "status"),
        (b'{"trace_id":"a","service":"b","timestamp":0,"results":[],"probability":0}', "probab"),
        (
            b'{"trace_id":"a","service":"b","timestamp":0,"results":[],"timings":{"total":-1}}',
            "timings",
        ),
        (b"[" * 100_000, "Invalid JSON"),
        (b'{"a":[' + b"{}," * 250_000 + b"{}]}", "JSON values"),
        (b" " * LIMIT + b"{}", "limits.trace_bytes"),
    ],
)
def test_a_bad_line_says_why(text: bytes, why: str) -> None:
    with pytest.raises(InvalidScoredLine, match=why):
        decode_scored_line(text, LIMIT)


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n  \ntwo\nthree")
    assert list(read_scored_lines(path, 100)) == [(b"one", 1), (b"two", 4), (b"three", 5)]


def test_of_an_overlong_line_only_the_limit_is_held(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"x" * 1_000_000 + b"\nnext\n" + b"y" * 10 + b"\n" + b"z" * 11)
    found = [(len(line), number) for line, number in read_scored_lines(path, 10)]
    assert found == [(11, 1), (4, 2), (10, 3), (11, 4)]


def test_gzip_is_unpacked_and_a_cut_one_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s.gz"
    whole = gzip.compress(b"one\n") + gzip.compress(json.dumps(line_dict()).encode())
    path.write_bytes(whole)
    assert [number for _, number in read_scored_lines(path, 10_000)] == [1, 2]
    path.write_bytes(whole[:-12])
    with pytest.raises(OSError, match="cut off"):
        list(read_scored_lines(path, 10_000))
    path.write_bytes(b"\x1f\x8b\x08nonsense and more of it")
    with pytest.raises(OSError, match=r"broken gzip|cut off"):
        list(read_scored_lines(path, 10_000))


def test_utf16_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"a": 1}\n', encoding="utf-16")
    with pytest.raises(OSError, match="UTF-8 is needed"):
        list(read_scored_lines(path, 100))
