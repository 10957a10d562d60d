"""A file or stream read in a thread ahead of whoever takes its items."""

from __future__ import annotations

import contextlib
import queue
import threading

from agent.sources.files import Item, Source

__all__ = ["POLL_SECONDS", "Reader"]

AHEAD = 64  # items read ahead of whoever takes them, enough to keep both busy
POLL_SECONDS = 0.2  # how soon a silent stream is left alone after a stop


class Reader:
    """Reads in a thread of its own: a stream may stay silent for ever, and a stop must not wait.

    The thread ends with the reading, after `stop`, or else with the process.
    """

    def __init__(
        self, source: Source, limit: int, start: int = 0, *, growing: bool = False
    ) -> None:
        self._items = source.read(limit, start, growing=growing)
        self._queue: queue.Queue[Item | Exception | None] = queue.Queue(AHEAD)
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
                self._queue.put(item, timeout=POLL_SECONDS)
                return True
            except queue.Full:
                pass
        return False

    def get(self) -> Item | Exception | None:
        """The next item, the error that ended the reading, or None at the end.

        Raises `queue.Empty` when nothing came for a while.
        """
        return self._queue.get(timeout=POLL_SECONDS)

    def stop(self) -> list[Item]:
        """End the thread; returns what it has read and nobody took."""
        self._stopped.set()
        left: list[Item] = []
        with contextlib.suppress(queue.Empty):
            while isinstance(item := self._queue.get_nowait(), tuple):
                left.append(item)
        return left
