"""Headers that sign in to a server, as settings and mounted secrets have them: shown nowhere.

What is wrong with one raises ValueError, whose text names its place and no value.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["checked", "from_lines", "read_headers"]

MAX_CHARS = 65_536  # a mounted secret has a few hundred; more is another file
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Printable ASCII, as httpx would else raise an error whose text holds the value.
VALUE = re.compile(r"[\x20-\x7e]*")

OURS = frozenset(
    ("content-type", "content-encoding", "content-length", "transfer-encoding", "host")
)
"""What a request needs to be understood is not for settings to change."""


def read_headers(file: Path) -> dict[str, str]:
    """Of a file of lines. OSError or ValueError where it is none."""
    with file.open(encoding="utf-8") as source:
        text = source.read(MAX_CHARS + 1)
    if len(text) > MAX_CHARS:
        raise ValueError("too large for a file of headers")
    return from_lines(text)


def from_lines(text: str) -> dict[str, str]:
    """`name: value`, one a line."""
    lines = enumerate((line.strip() for line in text.splitlines()), 1)
    return dict(checked(*line.partition(":"), f"line {n}") for n, line in lines if line)


def checked(name: str, mark: str, value: str, where: str) -> tuple[str, str]:
    """One header. `mark` is what stood between name and value, "" where nothing did."""
    name, value = name.strip().lower(), value.strip()
    if not mark or not NAME.fullmatch(name):
        raise ValueError(f"{where} does not begin with the name of a header")
    if name in OURS:
        raise ValueError(f"{where}: {name} is not for settings to change")
    if not VALUE.fullmatch(value):
        raise ValueError(f"{where}: the value is not printable ASCII")
    return name, value
