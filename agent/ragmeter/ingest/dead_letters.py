"""Append items that could not be decoded to the dead-letter file, one JSON line each."""

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

_MAX_FILE = 256 * 2**20  # bytes; a larger file is renamed to `.1`, and a new one begins


class DeadLetters:
    """The dead-letter file; a line is on disk when `write` returns.

    If the privacy settings redact or restrict content, only the length of the raw bytes and, with
    `content: hash`, their hash are stored: undecodable bytes cannot be redacted reliably.
    """

    def __init__(
        self, path: Path, redactor: Redactor | None = None, content: ContentPolicy | None = None
    ) -> None:
        self._path = path
        self._redactor = redactor or Redactor()
        self._content = content or ContentPolicy()

    def write(self, letters: Iterable[tuple[DecodeFailure, int]], source: str, now: float) -> int:
        """Write failures with their positions in a source; return how many were written.

        Raises:
            OSError: The file cannot be written; nothing was appended.
        """
        lines = [self._line(failure, source, position, now) for failure, position in letters]
        if not lines:
            return 0
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > _MAX_FILE:
            self._path.replace(f"{self._path}.1")
        self._append("".join(lines).encode("ascii"))
        return len(lines)

    def written_from(self, source: str, position: int) -> set[int]:
        """Return the positions of a source, from one on, that are in the file already.

        A process that died between writing here and storing its progress reads those items again;
        they must not be written twice.
        """
        positions: set[int] = set()
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
                        positions.add(entry["position"])
        return positions

    def _append(self, data: bytes) -> None:
        """Append all or, if that raises, nothing: a retry must not duplicate or spoil lines."""
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

    def _line(self, failure: DecodeFailure, source: str, position: int, now: float) -> str:
        entry: dict[str, Any] = {"source": source, "position": position, "at": now}
        entry |= failure.to_dict()
        if self._redactor.edits or not self._content.full:
            entry["errors"] = strip_error_text(failure.errors, self._redactor, self._content)
            entry["not_kept"] = self._content.raw(failure.raw)
        else:
            try:
                entry["raw"] = failure.raw.decode("utf-8")
            except UnicodeDecodeError:
                entry["raw_base64"] = base64.b64encode(failure.raw).decode("ascii")
        return json.dumps(entry) + "\n"


def strip_error_text(
    errors: Iterable[tuple[str, str]], redactor: Redactor, content: ContentPolicy
) -> list[dict[str, str]]:
    """Return errors without quoted values: the text of an exception may quote the input."""
    stripped = []
    for field, why in errors:
        if not content.full:
            why = why.partition("(")[0]
        texts = (redactor.text(text, {}) for text in (field, why))
        field, why = (FAILED if text is None else text for text in texts)
        stripped.append({"field": field, "why": why})
    return stripped
