"""Append what could not be read to the dead-letter file, one JSON line each."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.native import DecodeFailure
from ragmeter.ingest.redaction import FAILED, Redactor

_MAX_FILE = 256 * 2**20  # bytes; then the file is kept once as `.1` and a new one begins


class DeadLetters:
    """Appends to `path`; a line is on the disk when `write` returns.

    Under any setting of privacy the raw bytes are not kept: what cannot be read cannot be redacted
    for sure. Their length, and with `content: hash` their hash, stand in their place.
    """

    def __init__(
        self, path: Path, redactor: Redactor | None = None, content: ContentPolicy | None = None
    ) -> None:
        self._path = path
        self._redactor = redactor or Redactor()
        self._content = content or ContentPolicy()

    def write(self, letters: Iterable[tuple[DecodeFailure, int]], source: str, now: float) -> int:
        """Write each `Bad` with its position in `source`; returns how many. Raises OSError."""
        lines = [self._line(bad, source, position, now) for bad, position in letters]
        if not lines:
            return 0
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > _MAX_FILE:
            self._path.replace(f"{self._path}.1")
        self._append("".join(lines).encode("ascii"))
        return len(lines)

    def _append(self, data: bytes) -> None:
        """All of it or, where that raises, nothing: a caller that tries again must find neither
        lines that are there twice nor a torn one that takes the next along."""
        with self._path.open("a+b", buffering=0) as file:
            begin = file.seek(0, os.SEEK_END)
            if begin:
                file.seek(begin - 1)
                if file.read(1) != b"\n":  # torn by a kill
                    data = b"\n" + data
            try:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(begin)
                raise

    def _line(self, bad: DecodeFailure, source: str, position: int, now: float) -> str:
        entry: dict[str, Any] = {
            "source": source,
            "position": position,
            "at": now,
            **bad.to_dict(),
        }
        if self._redactor.edits or not self._content.full:
            entry["errors"] = strip_error_text(bad.errors, self._redactor, self._content)
            entry["not_kept"] = self._content.raw(bad.raw)
            return json.dumps(entry) + "\n"
        try:
            entry["raw"] = bad.raw.decode("utf-8")
        except UnicodeDecodeError:
            entry["raw_base64"] = base64.b64encode(bad.raw).decode("ascii")
        return json.dumps(entry) + "\n"

    def written_from(self, source: str, position: int) -> set[int]:
        """Positions at or after `position` of `source` that are in the file already.

        A process that died after writing here and before its progress was durable reads those
        items again; they must not be written twice.
        """
        found: set[int] = set()
        for path in (Path(f"{self._path}.1"), self._path):
            if not path.exists():
                continue
            with path.open("rb") as file:
                for line in file:
                    try:
                        entry = json.loads(line)
                    except ValueError:  # the torn last line of a killed process
                        continue
                    if entry.get("source") == source and entry.get("position", -1) >= position:
                        found.add(entry["position"])
        return found


def strip_error_text(
    errors: Iterable[tuple[str, str]], redactor: Redactor, content: ContentPolicy
) -> list[dict[str, str]]:
    """Errors without what they may quote: the text of an exception is not ours."""
    found = []
    for place, why in errors:
        if not content.full:
            why = why.partition("(")[0]
        texts = (redactor.text(text, {}) for text in (place, why))
        place, why = (FAILED if text is None else text for text in texts)
        found.append({"field": place, "why": why})
    return found
