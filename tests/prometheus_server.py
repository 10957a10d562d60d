"""A real Prometheus server with a configuration and a data folder of the test's own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.ports import free_port
from tests.real import require
from tests.waiting import PATIENCE

__all__ = ["prometheus"]


@contextmanager
def prometheus(folder: Path, config: str, flags: Sequence[str] = ()) -> Iterator[httpx.Client]:
    """A client of its API; the data lie in `folder`/data. Skips where there is no Prometheus."""
    program = require("prometheus")
    port = free_port()
    (folder / "prometheus.yml").write_text(config)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--enable-feature=exemplar-storage",
                *flags,
            ],
            stdout=log,
            stderr=log,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=PATIENCE) as client:
            yield client
    finally:
        process.terminate()
        process.wait(PATIENCE)
