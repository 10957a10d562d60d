from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
from ragmeter.console.streams import LogFormatter, StderrHandler, escape_control
from ragmeter.console.terminal import check_output_path
from ragmeter.core.errors import UsageError
from ragmeter.ingest.files import STDIN

from tests.tables import each_row


@each_row(
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


def logged(capsys: pytest.CaptureFixture[str], *, as_json: bool) -> str:
    logger = logging.getLogger("tests.console")
    handler = StderrHandler()
    handler.setFormatter(LogFormatter(as_json=as_json))
    logger.addHandler(handler)
    logger.propagate = False
    try:
        logger.warning("a %s line%s", "x\x1b[2Jy\n2026 forged", " that is long" * 20)
        try:
            raise ValueError("bad \x1b[2J")
        except ValueError:
            logger.exception("failed")
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
    return capsys.readouterr().err


def test_a_line_of_the_log_is_dated_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *trace = logged(capsys, as_json=False).splitlines()
    dated = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(
        dated + r" WARNING a x\\x1b\[2Jy\\n2026 forged line( that is long){20}", first
    )
    assert re.fullmatch(dated + " ERROR failed", second)
    assert trace[-1] == "ValueError: bad \\x1b[2J"


def test_a_line_of_the_log_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    lines = logged(capsys, as_json=True).splitlines()
    first, second = map(json.loads, lines)
    assert (first["level"], first["logger"]) == ("warning", "tests.console")
    assert first["message"].startswith("a x\x1b[2Jy\n2026 forged line")
    assert "\x1b" not in "".join(lines)
    assert "ValueError: bad" in second["traceback"]
