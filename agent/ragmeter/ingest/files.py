"""Read traces from files, pipes and standard input, ahead of their consumer if asked.

Input is JSON lines, one JSON array or one object, plain or gzip.
"""

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
from collections import deque
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, cast

from ragmeter.ingest import native

STDIN = Path("-")
MAX_SHOWN = 10  # unreadable items described on the terminal; the rest are only counted
MAX_ARRAY = 512 * 2**20  # bytes: a JSON array is read whole; larger files must be JSON lines
GZIP = b"\x1f\x8b"

HEAD = 4096  # bytes that distinguish a file from another one under the same path
# Bytes of a read: each hands the interpreter's lock to other threads, and waits to have it again.
_READ = 2**18
_AHEAD = 64  # items read ahead of the consumer, enough to keep both busy
_POLL_SECONDS = 0.2  # delay until a silent stream is abandoned after a stop

# an item and the position behind it, where reading goes on after a restart
Item = tuple[native.DecodedTrace | native.DecodeFailure, int]


class InputFile:
    """A file, or a stream (standard input, a pipe, a device) that is opened only once.

    `identity` names the content of a file: rewriting a file makes another one of it, growing does
    not once it has 4 KiB. It is None for a stream; `size` is None for all but plain text.
    `unfinished` tells whether the last `read` left an unfinished last line to the next one.

    Raises:
        OSError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = input_name(path)
        self.identity: str | None = None
        self.size: int | None = None
        self.empty = False
        self.unfinished = False
        if path == STDIN or not stat.S_ISREG(path.stat().st_mode):
            return
        with path.open("rb") as file:
            head = file.read(HEAD)
            bytes_now = os.fstat(file.fileno()).st_size
        self.empty = not head
        self.size = None if head.startswith((GZIP, native.PARQUET)) else bytes_now
        # a path may hold bytes that are not text
        name = os.fsencode(path.resolve()).decode("utf-8", "backslashreplace")
        self.identity = f"file:{name}:{hashlib.blake2b(head, digest_size=8).hexdigest()}"

    def read(self, limit: int, start: int = 0, *, growing: bool = False) -> Iterator[Item]:
        """Yield every item from a position on, with the position behind it.

        Args:
            limit: Bytes of one item; a longer line is a failure with its first `limit` bytes.
            start: Position: a byte offset of the decompressed text, or for a JSON array the number
                of items.
            growing: Hold back a broken last line without newline of a plain file, because the rest
                of it may still be written.

        Raises:
            OSError: The file cannot be read, its gzip is broken, or it is no UTF-8 text.
        """
        self.unfinished = False
        with named_gzip_errors(self.name), open_raw(self.path) as raw:
            yield from self._read(raw, limit, start, growing)

    def _read(self, raw: IO[bytes], limit: int, start: int, growing: bool) -> Iterator[Item]:
        head = raw.read(2)
        zipped = head == GZIP
        if self.identity is not None:
            raw.seek(0)
            head = b""
        if zipped:
            if self.identity is None:
                raw = cast(IO[bytes], _ArrivingStream(head, raw))
            raw = cast(IO[bytes], gzip.GzipFile(fileobj=raw, mode="rb"))
            head = b""
        file = _PeekableFile(raw, head)
        first = file.readline(limit + 1)
        native.check_text(first, self.name)
        skipped = len(native.BOM) if first.startswith(native.BOM) else 0
        first = first[skipped:]
        growing = growing and self.identity is not None and not zipped

        whole = self._read_whole(file, first, limit)
        if whole is not None and whole.lstrip()[:1] == b"[":
            yield from self._array(whole, limit, start, growing)
        elif whole is not None:
            if start < skipped + len(whole):
                yield native.decode_trace(whole.strip(), limit), skipped + len(whole)
        elif start:
            raw.seek(start)
            yield from self._lines(_PeekableFile(raw, b""), limit, start, growing)
        else:
            yield from self._lines(file, limit, skipped, growing)

    def _read_whole(self, file: _PeekableFile, first: bytes, limit: int) -> bytes | None:
        """Return all of a file that is one array or one object.

        None for lines, all of which are then still to be read from `file`. At most two lines of a
        stream of ordinary lines are waited for.
        """
        kind = first.lstrip()[:1]
        if kind == b"[":
            second = file.readline(limit + 1)
            # a first line that is an array by itself, followed by others, is a broken line
            if not (second.strip() and native.parse_json_array(first) is not None):
                return first + second + file.read(MAX_ARRAY)
            file.unread(second)
        elif kind == b"{" and first.endswith(b"\n") and not native.is_json_object(first):
            second = file.readline(limit + 1)
            if second.lstrip()[:1] not in (b"", b"{"):
                body = first + second + file.read(limit)
                if len(body) <= limit and native.is_json_object(body):
                    return body
                if first.strip() == b"{" and not any(map(native.is_json_object, body.splitlines())):
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
            line = line.strip()
            if not line:
                continue
            item = native.decode_trace(line, limit)
            broken = isinstance(item, native.DecodeFailure) and item.reason == "invalid_json"
            if broken and growing and not ended:
                self.unfinished = True
                return
            yield item, position

    def _array(self, body: bytes, limit: int, start: int, growing: bool) -> Iterator[Item]:
        if len(body) > MAX_ARRAY:
            raise OSError(f"{self.name}: an array over {MAX_ARRAY} bytes; write JSON lines instead")
        cut = growing and not body.rstrip().endswith(b"]")
        if cut and not any(map(native.is_json_object, body.splitlines())):
            self.unfinished = True
            return
        for number, item in enumerate(native.decode_trace_body(body, limit), start=1):
            if number > start:
                yield item, number


class ReadAhead:
    """Runs `InputFile.read` in a thread, so that a stop need not wait for a silent stream.

    The thread ends with the file, after `stop`, or with the process.
    """

    def __init__(
        self, source: InputFile, limit: int, start: int = 0, *, growing: bool = False
    ) -> None:
        self._source = source.read(limit, start, growing=growing)
        self._items: deque[Item | Exception | None] = deque()
        # set for many items at once: a change of threads for each takes as long as its decoding
        self._ready = threading.Event()
        self._room = threading.Event()
        self._stopped = threading.Event()
        threading.Thread(target=self._read, name="ragmeter-reader", daemon=True).start()

    def get(self) -> Item | Exception | None:
        """Return the next item, the error that ended the reading, or None at the end.

        Raises:
            queue.Empty: Nothing came for a while.
        """
        self._ready.clear()
        if not self._items:
            self._ready.wait(_POLL_SECONDS)
            if not self._items:
                raise queue.Empty
        item = self._items.popleft()
        if not self._room.is_set() and len(self._items) < _AHEAD // 2:
            self._room.set()
        return item

    def stop(self) -> list[Item]:
        """End the thread and return the items that it read and nobody took."""
        self._stopped.set()
        self._room.set()
        left: list[Item] = []
        with contextlib.suppress(IndexError):
            while isinstance(item := self._items.popleft(), tuple):
                left.append(item)
        return left

    def _read(self) -> None:
        end: Exception | None = None
        try:
            for item in self._source:
                if len(self._items) >= _AHEAD:
                    self._wait_for_room()
                if self._stopped.is_set():
                    return
                self._items.append(item)
                if len(self._items) == _AHEAD // 2:
                    self._ready.set()
        except Exception as error:  # for the consumer
            end = error
        self._items.append(end)
        self._ready.set()

    def _wait_for_room(self) -> None:
        self._room.clear()
        if len(self._items) >= _AHEAD and not self._stopped.is_set():
            self._room.wait()


def open_raw(path: Path) -> IO[bytes]:
    """Open a file, or standard input for `STDIN`, for reading bytes."""
    if path != STDIN:
        return path.open("rb", buffering=_READ)
    if sys.stdin is None:
        raise OSError("standard input is closed")
    # a separate file object: a thread waiting in `sys.stdin` would break the interpreter's exit
    return os.fdopen(os.dup(0), "rb")


@contextlib.contextmanager
def named_gzip_errors(name: str) -> Iterator[None]:
    """Raise errors of gzip as OSError with the name of the file."""
    try:
        yield
    except EOFError:
        raise OSError(f"{name}: the gzip stream is cut off") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise OSError(f"{name}: broken gzip: {error}") from None


def iterate_lines(file: IO[bytes], name: str, limit: int) -> Iterator[tuple[bytes, int]]:
    """Yield each line of an open file that is not blank, with its number.

    A line of more than `limit` bytes is cut to `limit + 1` bytes.

    Raises:
        OSError: It is no UTF-8 text; the text of the error begins with `name`.
    """
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if number == 1:
            native.check_text(line, name)
            line = line.removeprefix(native.BOM)
        whole = line
        while len(line) > limit and not line.endswith(b"\n"):
            line = file.readline(limit + 1)
        if whole.strip():
            yield whole.rstrip(b"\r\n"), number


def input_name(path: Path) -> str:
    """Return the name of a file for messages."""
    return "standard input" if path == STDIN else str(path)


@contextlib.contextmanager
def open_input(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read its bytes: `-` is stdin, gzip is unpacked.

    Raises:
        OSError: The file cannot be read; also for broken gzip, while it is read.
    """
    with named_gzip_errors(input_name(path)), open_raw(path) as raw:
        if raw.peek(2)[:2] != GZIP:  # type: ignore[attr-defined]
            yield raw
            return
        with gzip.open(raw) as unpacked:
            yield cast(IO[bytes], unpacked)


class _PeekableFile:
    """A file to which bytes can be given back."""

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
        data = self._ahead.read(size)
        return data + self._file.read(size - len(data))

    def skip_line(self) -> int:
        """Read to the end of the line and return the number of bytes read."""
        skipped = 0
        while data := self.readline(2**20):
            skipped += len(data)
            if data.endswith(b"\n"):
                break
        return skipped


class _ArrivingStream:
    """A stream for `gzip`, read as it arrives; `head` was read from it before."""

    def __init__(self, head: bytes, file: IO[bytes]) -> None:
        self._head = head
        self._file = file

    def read(self, size: int) -> bytes:
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        return self._file.read1(size)  # type: ignore[attr-defined, no-any-return]
