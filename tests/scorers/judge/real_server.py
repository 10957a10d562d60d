"""A real OpenAI-compatible server for tests: llama.cpp's, serving a tiny random model.

Server and protocol are llama.cpp's; constrained by a grammar, even a random model gives JSON that
fits the schema it was asked for. Free text of it is noise.
"""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real import unavailable
from tests.scorers.judge import tiny_model
from tests.waiting import PATIENCE

__all__ = ["KEY", "MODEL", "LlamaServer", "installed", "llama_server"]

KEY = "sesame-of-the-tests"
MODEL = "tiny-random"
ROOT = Path(__file__).parents[3]


@dataclass
class LlamaServer:
    """`base_url` ends in `/v1`; `kill` ends the server without a goodbye."""

    base_url: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.base_url.rsplit(":", 1)[1].removesuffix("/v1"))

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Connections are taken, and nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


def installed() -> None:
    """Nothing, where the server's wheel is installed: llama.cpp with its server, ready built."""
    if importlib.util.find_spec("xllamacpp") is None:
        unavailable("needs the Python package xllamacpp: make setup (not on every platform)")


@contextmanager
def llama_server(
    folder: Path,
    *,
    context: int = 16_384,
    name: str = MODEL,
    port: int = 0,
) -> Iterator[LlamaServer]:
    """A server that is ready, with `context` tokens for each request; ended on leaving.

    `name` is what its replies call the model; `port` 0 is a free one.
    """
    installed()
    model = folder / "tiny.gguf"
    tiny_model.write(model)
    command = [sys.executable, "-m", "tests.scorers.judge.llama_server"]
    command += [str(model), name, KEY, str(context), str(port)]
    with (folder / "llama.log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        try:
            # The address is printed when the model is loaded; it ends at once where it cannot be.
            address = process.stdout.readline().strip()
            if not address:
                pytest.fail(f"llama.cpp did not start:\n{(folder / 'llama.log').read_text()}")
            yield LlamaServer(f"{address}/v1", process)
        finally:
            process.kill()
            process.wait(PATIENCE)
            process.stdout.close()
