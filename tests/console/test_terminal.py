from __future__ import annotations

from pathlib import Path

import pytest

from ragmeter.console.terminal import UsageError, check_output_path, escape_control
from ragmeter.ingest.files import STDIN


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü", "plain ü"),
        ("two\nlines", "two\nlines"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_characters_that_control_a_terminal_are_escaped(text: str, shown: str) -> None:
    assert escape_control(text) == shown


def test_an_output_that_would_destroy_an_input_is_refused(tmp_path: Path) -> None:
    source, link = tmp_path / "in.jsonl", tmp_path / "link.jsonl"
    source.write_text("{}\n")
    link.symlink_to(source)
    check_output_path("--output", tmp_path / "out.jsonl", [source, STDIN])
    for output in (source, link):
        with pytest.raises(UsageError, match="--output"):
            check_output_path("--output", output, [source])
    with pytest.raises(UsageError, match="name of a file"):
        check_output_path("--output", STDIN, [source])
