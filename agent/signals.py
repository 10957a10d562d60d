"""What a process does when it is told to stop, or to read its settings again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

__all__ = ["Signals"]


class Signals:
    """`stop` is set by SIGINT and SIGTERM; a second one ends the process at once. SIGHUP calls
    `reload`. To be made in the loop that runs."""

    def __init__(self, reload: Callable[[], None] | None = None) -> None:
        self.stop = asyncio.Event()
        self.reload = reload
        """None: nothing is running yet that it could change."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)

    def _reload(self) -> None:
        if self.reload is not None:
            self.reload()

    def _stop(self, number: signal.Signals) -> None:
        if self.stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.stop.set()
