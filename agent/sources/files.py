"""Traces from files and stdin: JSON lines or one JSON array, plain or gzip."""

from __future__ import annotations

import gzip
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from agent.ingest.native import Bad, Good, decode, decode_one, parse_array

__all__ = ["STDIN", "identity", "read", "size"]

STDIN = Path("-")
MAX_ARRAY = 512 * 2**20  # bytes: a JSON array is read whole; larger files must be JSON lines
Item = tuple[Good | Bad, int]
"""What was read and the position behind it, where reading goes on after a restart."""


def identity(path: Path) -> str:
    """A name for the file's content under its path: a rewritten file is a new source.

    The hash of its first 4 KiB; what is appended later leaves it as it was once it is that long.
    """
    if path == STDIN:
        return "stdin"
    with path.open("rb") as file:
        head = hashlib.blake2b(file.read(4096), digest_size=8).hexdigest()
    return f"file:{path.resolve()}:{head}"


def size(path: Path) -> int | None:
    """Bytes of a plain file, for a progress bar; None where that is unknown."""
    if path == STDIN:
        return None
    return None if _gzipped(path) else path.stat().st_size


def _gzipped(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _open(path: Path) -> IO[bytes]:
    if path == STDIN:
        return sys.stdin.buffer
    return cast(IO[bytes], gzip.open(path)) if _gzipped(path) else path.open("rb")


def read(path: Path, limit: int, start: int = 0) -> Iterator[Item]:
    """Every item from `start` on, with the position behind it.

    A position is a byte offset (of the decompressed text), or an item's number in a JSON array.
    A line over `limit` bytes is a `Bad` that keeps its first `limit` bytes. Raises OSError, also
    for a gzip file that is cut off.
    """
    with _open(path) as file:
        first = file.readline(limit + 1)
        second = file.readline(limit + 1)
        # a first line that is an array by itself, with more behind it, is a poisoned line
        if first.lstrip()[:1] == b"[" and not (second.strip() and parse_array(first) is not None):
            yield from _array(path, first + second + file.read(MAX_ARRAY), limit, start)
        elif start and path != STDIN:
            file.seek(start)
            yield from _lines(file, [], limit, start)
        else:
            yield from _lines(file, [first, second], limit, 0)


def _lines(file: IO[bytes], ahead: list[bytes], limit: int, position: int) -> Iterator[Item]:
    """The items of the lines in `ahead`, which were read from `file` already, and of the rest."""
    ahead = list(filter(None, ahead))
    while line := ahead.pop(0) if ahead else file.readline(limit + 1):
        position += len(line)
        while ahead and not line.endswith(b"\n"):  # a long first line that was read in two parts
            position += len(ahead[0])
            line += ahead.pop(0)
        if len(line) > limit and not line.endswith(b"\n"):
            position += _skip_line(file)
        if line.strip():
            yield decode_one(line.strip(), limit), position


def _skip_line(file: IO[bytes]) -> int:
    skipped = 0
    while part := file.readline(2**20):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def _array(path: Path, body: bytes, limit: int, start: int) -> Iterator[Item]:
    if len(body) > MAX_ARRAY:
        raise OSError(f"{path}: a JSON array over {MAX_ARRAY} bytes; write JSON lines instead")
    for number, item in enumerate(decode(body, limit), start=1):
        if number > start:
            yield item, number
