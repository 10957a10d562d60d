"""`make run` as a process, and the images of its pages.

    python -m tests.system.demo

writes `status-page.png`, `incident.png` and `trace-page.png` into docs/images.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.exporters.browser import Browser, browser
from tests.ports import free_port
from tests.real import require
from tests.waiting import PATIENCE

__all__ = ["ROOT", "demo", "served"]

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
WIDTH = 1400


def demo(folder: Path, *arguments: str, **settings: str) -> subprocess.Popen[str]:
    """The demo with its state in `folder`; both streams go to `folder`/out.

    Tests leave the embedded model out of the processes that they start, this one needs it.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RAGMETER_")}
    with (folder / "out").open("w") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "examples.demo", *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            text=True,
            env={**inherited, "PYTHONPATH": str(ROOT), **settings},
        )


@contextmanager
def served(folder: Path) -> Iterator[list[str]]:
    """The pages that the demo says to open, once it serves."""
    ports = {
        "RAGMETER_HTTP__METRICS_PORT": str(free_port()),
        "RAGMETER_HTTP__OTLP_PORT": str(free_port()),
    }
    process = demo(folder, **ports)
    try:
        end = time.monotonic() + PATIENCE
        while "serving until" not in (text := (folder / "out").read_text()):
            assert process.poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.5)
        yield re.findall(r"open \d: (\S+)", text)
    finally:
        process.terminate()
        process.wait(PATIENCE)


def take_screenshot(page: Browser, name: str, script: str, height: float | None = None) -> None:
    """What a script of the page points at, or so much from its top on."""
    x, y, width, own = page.run(
        f"const box = ({script}).getBoundingClientRect();"
        "return [box.x + scrollX, box.y + scrollY, box.width, box.height]"
    )
    clip = {"x": x, "y": y, "width": width, "height": height or own, "scale": 1}
    shot = page.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    (IMAGES / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ragmeter-demo-")))
        urls = stack.enter_context(served(folder))
        chrome = browser(require("chromedriver"), require("chromium"), folder / "profile")
        page = stack.enter_context(chrome)
        page.size(WIDTH, 900)
        page.open(urls[0])
        take_screenshot(page, "status-page", "document.body", 900)
        page.open(urls[1])
        take_screenshot(page, "incident", "document.querySelector('main')")
        page.open(urls[3])
        take_screenshot(page, "trace-page", "document.body", 800)


if __name__ == "__main__":
    main()
