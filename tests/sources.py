"""Python sources as syntax trees, parsed once a process for all tests that look at them."""

from __future__ import annotations

import ast
import contextlib
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "nodes", "tree"]

ROOT = Path(__file__).parents[1]


def tree(path: Path) -> ast.Module:
    """Of a file; a relative path is one from the root."""
    return _tree(ROOT / path)


def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file, in the order of `ast.walk`, which takes as long as parsing."""
    return _nodes(ROOT / path)


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Collect no garbage meanwhile: trees stay, and to collect takes twice as long as to parse."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@cache
def _tree(path: Path) -> ast.Module:
    with _no_collections():
        return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def _nodes(path: Path) -> list[ast.AST]:
    with _no_collections():
        return list(ast.walk(_tree(path)))
