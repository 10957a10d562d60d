"""Feedback from a file: JSON lines or one JSON array, plain or gzip; `-` is standard input."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from agent.feedback.labels import Feedback
from agent.ingest.bounds import TooMuch
from agent.ingest.feedback import MAX_BYTES, decode, decode_one
from agent.ingest.native import Bad
from agent.sources.files import GZIP, MAX_ARRAY, STDIN

__all__ = ["read_feedback"]


def read_feedback(path: Path) -> Iterator[Feedback | Bad]:
    """Every item. Raises OSError, also for broken gzip and an array that is too large."""
    try:
        with os.fdopen(os.dup(0), "rb") if path == STDIN else path.open("rb") as raw:
            yield from _items(path, cast("IO[bytes]", raw))
    except EOFError:
        raise OSError(f"{path}: the gzip stream is cut off") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise OSError(f"{path}: broken gzip: {error}") from None
    except TooMuch as error:
        raise OSError(f"{path}: {error}; write JSON lines instead") from None


def _items(path: Path, raw: IO[bytes]) -> Iterator[Feedback | Bad]:
    buffered = raw
    if raw.peek(2)[:2] == GZIP:  # type: ignore[attr-defined]
        buffered = cast("IO[bytes]", gzip.GzipFile(fileobj=raw, mode="rb"))
    first = buffered.readline(MAX_BYTES + 1)
    if first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
        body = first + buffered.read(MAX_ARRAY)
        if len(body) > MAX_ARRAY:
            raise OSError(f"{path}: an array over {MAX_ARRAY} bytes; write JSON lines instead")
        yield from decode(body)
        return
    line = first.removeprefix(b"\xef\xbb\xbf")
    while line:
        if line.strip():
            yield decode_one(line.strip())
        while len(line) > MAX_BYTES and not line.endswith(b"\n"):
            line = buffered.readline(MAX_BYTES + 1)  # the rest of a line that was too long
        line = buffered.readline(MAX_BYTES + 1)
