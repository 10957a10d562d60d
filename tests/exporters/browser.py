"""Chromium through chromedriver, spoken to in plain WebDriver: no further dependency."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.waiting import PATIENCE

__all__ = ["Browser", "browser"]

# The sandbox needs user namespaces, which containers often lack; the rest keeps it off the network.
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


@dataclass
class Browser:
    client: httpx.Client
    session: str

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self.client.post(f"/session/{self.session}/{path}", json=body)
        answer.raise_for_status()
        return answer.json()["value"]

    def cdp(self, command: str, **parameters: Any) -> Any:
        return self._post("goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width: int, height: int) -> None:
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 700,
        )

    def scheme(self, name: str) -> None:
        self.cdp(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": name}],
        )

    def open(self, url: str) -> None:
        self._post("url", {"url": url})

    def run(self, script: str) -> Any:
        """Run a script of the test's; WebDriver is not bound by the page's policy."""
        return self._post("execute/sync", {"script": script, "args": []})

    def logs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._post("se/log", {"type": "browser"})
        return found

    def screenshot(self, path: Path, whole: bool = True) -> None:
        shot = self.cdp("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser(chromedriver: str, chromium: str, folder: Path) -> Iterator[Browser]:
    """A headless Chromium with a fresh profile in `folder`; ended on leaving."""
    driver = subprocess.Popen(
        [chromedriver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert driver.stdout is not None
    try:
        # "ChromeDriver was started successfully on port 41235."
        for line in driver.stdout:
            if "successfully on port" in line:
                port = int(line.rstrip(" .\n").rsplit(" ", 1)[1])
                break
        else:
            raise RuntimeError("chromedriver did not start")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            options = {"binary": chromium, "args": [*ARGUMENTS, f"--user-data-dir={folder}"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            answer = client.post("/session", json={"capabilities": {"alwaysMatch": wanted}})
            answer.raise_for_status()
            session = answer.json()["value"]["sessionId"]
            try:
                yield Browser(client, session)
            finally:
                client.delete(f"/session/{session}")
    finally:
        driver.terminate()
        driver.wait(PATIENCE)
        driver.stdout.close()
