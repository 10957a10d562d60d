from __future__ import annotations

import json
from typing import Any

import pytest
from ragmeter.core.feedback import Feedback
from ragmeter.ingest.feedback_files import MAX_BYTES, MAX_ITEMS, decode_feedback_body
from ragmeter.ingest.native import BodyLimitExceeded, DecodeFailure

ONE: dict[str, Any] = {"trace_id": "t1", "timestamp": 1, "answer": {"helpful": True}}


def line(**fields: Any) -> bytes:
    return json.dumps({**ONE, **fields}).encode()


def ids(body: bytes) -> list[str]:
    return [
        item.trace_id if isinstance(item, Feedback) else item.reason
        for item in decode_feedback_body(body)
    ]


@pytest.mark.parametrize(
    "body",
    [
        line(trace_id="a") + b"\n\n" + line(trace_id="b"),
        b"[" + line(trace_id="a") + b"," + line(trace_id="b") + b"]",
        b"\xef\xbb\xbf" + line(trace_id="a") + b"\r\n" + line(trace_id="b") + b"\r\n",
    ],
)
def test_lines_and_arrays(body: bytes) -> None:
    assert ids(body) == ["a", "b"]


def test_one_object_over_several_lines() -> None:
    assert ids(json.dumps(ONE, indent=2).encode()) == ["t1"]


def test_what_is_bad_is_named_and_costs_no_other() -> None:
    body = b"\n".join(
        [
            line(),
            line(answer={"helpful": "perhaps"}),
            b'{"trace_id": 1',
            line(answer={}),
            line(scorer="umbrela"),
            line(answer={"fabricated_source": True, "source_cited": 0}),
            line(passages={"a": {"misleading": True, "nice": True}}),
            line(trace_id="last"),
        ]
    )
    assert ids(body) == [
        "t1",
        "invalid_feedback",
        "invalid_json",
        *["invalid_feedback"] * 4,
        "last",
    ]
    bad = [item for item in decode_feedback_body(body) if isinstance(item, DecodeFailure)]
    assert bad[0].errors[0][0] == "answer.helpful"
    assert "no label" in bad[2].errors[0][1]
    assert all(item.raw == b"" for item in bad)


@pytest.mark.parametrize(
    ("body", "reason"), [(b"", "empty"), (b"{\0}\0", "invalid_json"), (b"nonsense", "invalid_json")]
)
def test_no_feedback_at_all(body: bytes, reason: str) -> None:
    assert ids(body) == [reason]


def test_bounds() -> None:
    assert ids(line(trace_id="x" * MAX_BYTES)) == ["too_large"]
    deep = b'{"trace_id": "a", "timestamp": 1, "more": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"
    assert ids(deep) == ["too_large"]
    with pytest.raises(BodyLimitExceeded):
        list(decode_feedback_body(b"\n".join([line()] * (MAX_ITEMS + 1))))
    with pytest.raises(BodyLimitExceeded):
        list(decode_feedback_body(b"[" + b",".join([b"{}"] * (MAX_ITEMS + 1)) + b"]"))
