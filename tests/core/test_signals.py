from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

from ragmeter.core.process import SignalHandlers

from tests.waiting import PATIENCE


def test_a_signal_to_stop_is_noticed_and_one_to_reload_calls() -> None:
    async def go() -> int:
        calls: list[None] = []
        for reload in (None, lambda: calls.append(None)):  # at first nothing runs yet
            signals = SignalHandlers(reload)
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
            await signals.stop.wait()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        return len(calls)

    assert asyncio.run(go()) == 1


def test_a_second_signal_ends_the_process_at_once() -> None:
    program = """
import asyncio, signal
from ragmeter.core.process import SignalHandlers

async def main():
    signals = SignalHandlers()
    signal.raise_signal(signal.SIGTERM)
    await signals.stop.wait()
    signal.raise_signal(signal.SIGTERM)
    await asyncio.sleep(1000)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=PATIENCE)
    assert done.returncode == -signal.SIGTERM
