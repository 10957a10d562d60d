from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from ragmeter.core.feedback import Feedback
from ragmeter.ingest.feedback_files import MAX_BYTES, read_feedback


def line(name: str) -> bytes:
    feedback = {"trace_id": name, "timestamp": 1, "answer": {"helpful": True}}
    return json.dumps(feedback).encode()


LINES = b"\n".join([line("a"), b"", line("b")])


def read(tmp_path: Path, content: bytes) -> list[str]:
    path = tmp_path / "labels"
    path.write_bytes(content)
    return [
        item.trace_id if isinstance(item, Feedback) else item.reason for item in read_feedback(path)
    ]


@pytest.mark.parametrize(
    "content",
    [
        LINES,
        LINES + b"\r\n",
        b"\xef\xbb\xbf" + LINES,
        gzip.compress(LINES, mtime=0),
        b"[" + line("a") + b",\n" + line("b") + b"]\n",
        gzip.compress(b" [" + line("a") + b"," + line("b") + b"]", mtime=0),
    ],
)
def test_lines_arrays_and_gzip(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content) == ["a", "b"]


def test_a_line_that_is_too_long_costs_no_other(tmp_path: Path) -> None:
    content = b"\n".join([line("a"), b"x" * (2 * MAX_BYTES + 5), line("b")])
    assert read(tmp_path, content) == ["a", "too_large", "b"]


def test_nothing_and_nonsense(tmp_path: Path) -> None:
    assert read(tmp_path, b"") == []
    assert read(tmp_path, b"what\n" + line("b")) == ["invalid_json", "b"]


@pytest.mark.parametrize("content", [gzip.compress(LINES, mtime=0)[:-9], b"\x1f\x8bno gzip"])
def test_broken_gzip_is_an_error_of_the_file(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(OSError, match="gzip"):
        read(tmp_path, content)
