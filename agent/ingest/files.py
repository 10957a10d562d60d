"""Read items from files, pipes and standard input (JSON lines, one JSON array or one object, plain or gzip), ahead of the consumer if wanted."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import queue
import stat
import sys
import threading
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, cast

from ragmeter.ingest.native import (
    BOM,
    DecodedTrace,
    DecodeFailure,
    decode_trace,
    decode_trace_body,
    is_json_object,
    is_utf16,
    parse_json_array,
)

STDIN = Path("-")
MAX_SHOWN = 10  # unreadable items described on the terminal; the rest are only counted
MAX_ARRAY = 512 * 2**20  # bytes: a JSON array is read whole; larger files must be JSON lines
GZIP = b"\x1f\x8b"
HEAD = 4096  # bytes that tell a file from another one under the same path
Item = tuple[DecodedTrace | DecodeFailure, int]
"""What was read and the position behind it, where reading goes on after a restart."""


class InputFile:
    """A file to read, or a stream: stdin, a pipe, a device, which is opened once and never again.

    `identity` names the content of a file: a rewritten file is another source, a grown one is not
    once it is 4 KiB long. None: a stream, of which nothing can be remembered. `size` is in bytes,
    None where nobody knows. Raises OSError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = "standard input" if path == STDIN else str(path)
        self.identity: str | None = None
        self.size: int | None = None
        self.empty = False
        self.unfinished = False
        """Whether the last reading left an unfinished last line to the next run."""
        if path == STDIN or not stat.S_ISREG(path.stat().st_mode):
            return
        with path.open("rb") as file:
            head = file.read(HEAD)
            bytes_now = os.fstat(file.fileno()).st_size
        self.empty = not head
        self.size = None if head.startswith(GZIP) else bytes_now
        # a path may hold bytes that are no text
        name = os.fsencode(path.resolve()).decode("utf-8", "backslashreplace")
        self.identity = f"file:{name}:{hashlib.blake2b(head, digest_size=8).hexdigest()}"

    def read(self, limit: int, start: int = 0, *, growing: bool = False) -> Iterator[Item]:
        """Every item from `start` on, with the position behind it.

        A position is a byte offset (of the decompressed text), or an item's number in a JSON
        array. A line over `limit` bytes is a `Bad` that keeps its first `limit` bytes. With
        `growing`, a broken last line without newline of a plain file is not given: more of it may
        be on its way. Raises OSError, also for broken gzip and for what is not UTF-8.
        """
        self.unfinished = False
        try:
            with self._open() as raw:
                yield from self._read(raw, limit, start, growing)
        except EOFError:
            raise OSError(f"{self.name}: the gzip stream is cut off") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise OSError(f"{self.name}: broken gzip: {error}") from None

    def _open(self) -> IO[bytes]:
        if self.path != STDIN:
            return self.path.open("rb")
        if sys.stdin is None:
            raise OSError("standard input is closed")
        # an own file on it: a thread that waits in `sys.stdin` would break the interpreter's end
        return os.fdopen(os.dup(0), "rb")

    def _read(self, raw: IO[bytes], limit: int, start: int, growing: bool) -> Iterator[Item]:
        head = raw.read(2)
        zipped = head == GZIP
        if self.identity is not None:
            raw.seek(0)
            head = b""
        if zipped:
            inner = (
                raw if self.identity is not None else cast(IO[bytes], _ArrivingStream(head, raw))
            )
            raw, head = cast(IO[bytes], gzip.GzipFile(fileobj=inner, mode="rb")), b""
        file = _PeekableFile(raw, head)
        first = file.readline(limit + 1)
        if is_utf16(first):
            raise OSError(f"{self.name}: UTF-16 text; UTF-8 is needed")
        skipped = len(BOM) if first.startswith(BOM) else 0
        first = first[skipped:]
        growing = growing and self.identity is not None and not zipped

        whole = self._whole(file, first, limit)
        if whole is not None and whole.lstrip()[:1] == b"[":
            yield from self._array(whole, limit, start, growing)
        elif whole is not None:
            if start < skipped + len(whole):
                yield decode_trace(whole.strip(), limit), skipped + len(whole)
        elif start:
            raw.seek(start)
            yield from self._lines(_PeekableFile(raw, b""), limit, start, growing)
        else:
            yield from self._lines(file, limit, skipped, growing)

    def _whole(self, file: _PeekableFile, first: bytes, limit: int) -> bytes | None:
        """All of a file that is one array or one object; None for lines, which `file` then gives
        from the first on. A stream of ordinary lines is not waited for.
        """
        kind = first.lstrip()[:1]
        if kind == b"[":
            second = file.readline(limit + 1)
            # a first line that is an array by itself, with more behind it, is a poisoned line
            if not (second.strip() and parse_json_array(first) is not None):
                return first + second + file.read(MAX_ARRAY)
            file.unread(second)
        elif kind == b"{" and first.endswith(b"\n") and not is_json_object(first):
            second = file.readline(limit + 1)
            if second.lstrip()[:1] not in (b"", b"{"):
                body = first + second + file.read(limit)
                if len(body) <= limit and is_json_object(body):
                    return body
                if first.strip() == b"{" and not any(map(is_json_object, body.splitlines())):
                    raise OSError(
                        f"{self.name}: JSON printed over several lines; write one object a line,"
                        " or one array"
                    )
                second = body[len(first) :]
            file.unread(second)
        file.unread(first)
        return None

    def _lines(
        self, file: _PeekableFile, limit: int, position: int, growing: bool
    ) -> Iterator[Item]:
        while line := file.readline(limit + 1):
            position += len(line)
            ended = line.endswith(b"\n")
            if len(line) > limit and not ended:
                position += file.skip_line()
            if not line.strip():
                continue
            item = decode_trace(line.strip(), limit)
            broken = isinstance(item, DecodeFailure) and item.reason == "invalid_json"
            if broken and growing and not ended:
                self.unfinished = True
                return
            yield item, position

    def _array(self, body: bytes, limit: int, start: int, growing: bool) -> Iterator[Item]:
        if len(body) > MAX_ARRAY:
            raise OSError(f"{self.name}: an array over {MAX_ARRAY} bytes; write JSON lines instead")
        cut = growing and not body.rstrip().endswith(b"]")
        if cut and not any(map(is_json_object, body.splitlines())):
            self.unfinished = True
            return
        for number, item in enumerate(decode_trace_body(body, limit), start=1):
            if number > start:
                yield item, number


class _PeekableFile:
    """A file to which bytes that were looked at can be given back."""

    def __init__(self, file: IO[bytes], ahead: bytes) -> None:
        self._file = file
        self._ahead = BytesIO(ahead)

    def unread(self, data: bytes) -> None:
        self._ahead = BytesIO(data + self._ahead.read())

    def readline(self, size: int) -> bytes:
        line = self._ahead.readline(size)
        if line.endswith(b"\n") or len(line) == size:
            return line
        return line + self._file.readline(size - len(line))

    def read(self, size: int) -> bytes:
        part = self._ahead.read(size)
        return part + self._file.read(size - len(part))

    def skip_line(self) -> int:
        """Read to the end of the line; returns how many bytes that were."""
        skipped = 0
        while part := self.readline(2**20):
            skipped += len(part)
            if part.endswith(b"\n"):
                break
        return skipped


class _ArrivingStream:
    """What `gzip` needs of a stream, read as it arrives; `head` was read from it already."""

    def __init__(self, head: bytes, file: IO[bytes]) -> None:
        self._head = head
        self._file = file

    def read(self, size: int) -> bytes:
        if self._head:
            part, self._head = self._head[:size], self._head[size:]
            return part
        return self._file.read1(size)  # type: ignore[attr-defined, no-any-return]


_AHEAD = 64  # items read ahead of whoever takes them, enough to keep both busy
_POLL_SECONDS = 0.2  # how soon a silent stream is left alone after a stop


class ReadAhead:
    """Reads in a thread of its own: a stream may stay silent for ever, and a stop must not wait.

    The thread ends with the reading, after `stop`, or else with the process.
    """

    def __init__(
        self, source: InputFile, limit: int, start: int = 0, *, growing: bool = False
    ) -> None:
        self._items = source.read(limit, start, growing=growing)
        self._queue: queue.Queue[Item | Exception | None] = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        threading.Thread(target=self._read, name="ragmeter-reader", daemon=True).start()

    def _read(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    return
            self._put(None)
        except Exception as error:  # for the thread that asked for it
            self._put(error)

    def _put(self, item: Item | Exception | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=_POLL_SECONDS)
                return True
            except queue.Full:
                pass
        return False

    def get(self) -> Item | Exception | None:
        """The next item, the error that ended the reading, or None at the end.

        Raises `queue.Empty` when nothing came for a while.
        """
        return self._queue.get(timeout=_POLL_SECONDS)

    def stop(self) -> list[Item]:
        """End the thread; returns what it has read and nobody took."""
        self._stopped.set()
        left: list[Item] = []
        with contextlib.suppress(queue.Empty):
            while isinstance(item := self._queue.get_nowait(), tuple):
                left.append(item)
        return left
