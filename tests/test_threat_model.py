"""docs/security.md names tests that exist, for each threat."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ragmeter.server.listener import OPEN_PATHS, PATH_SCOPES

from tests.server.ports import DOCUMENT_PATHS
from tests.sources import ROOT, nodes

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))


def names_in(path: Path) -> set[str]:
    return {
        node.name
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:5] == "test_"
    }


def test_every_test_that_is_named_exists() -> None:
    assert len(NAMED) > 30
    missing = [
        f"{path}::{name}"
        for path, name in NAMED
        if not (ROOT / path).is_file()
        or (name and name not in names_in(ROOT / path))
        or not names_in(ROOT / path)
    ]
    assert missing == []


def test_every_threat_has_a_measure_and_a_test() -> None:
    tables = re.findall(r"\| threat \| measure \| shown by \|\n\| -+ .*\n((?:\|.*\n)+)", PAGE)
    rows = [line for table in tables for line in table.strip().splitlines()]
    assert len(rows) > 20
    for row in rows:
        _, threat, measure, shown, _ = (cell.strip() for cell in re.split(r"(?<!\\)\|", row))
        assert threat, row
        assert measure, row
        assert "`tests/" in shown or "`make " in shown, row


def test_nothing_follows_redirects() -> None:
    """httpx follows none unless it is asked to; with the headers of a secret it never must."""
    followers = [
        str(path.relative_to(ROOT))
        for part in ("agent", "exporters")
        for path in (ROOT / part).rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.keyword) and node.arg in ("follow_redirects", "allow_redirects")
        if not (isinstance(node.value, ast.Constant) and node.value.value is False)
    ]
    assert followers == []


def test_every_open_path_is_said_to_be_open() -> None:
    assert [
        path for path in (*OPEN_PATHS, *PATH_SCOPES, *DOCUMENT_PATHS) if f"`{path}`" not in PAGE
    ] == []
