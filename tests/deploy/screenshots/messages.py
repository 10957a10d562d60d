"""`python -m tests.deploy.screenshots.messages`: images of alert messages for docs/images.

`ragmeter run` replays a day of the bundled answers, in whose last hour half of the traffic gets
the answers to other questions from a new version of the model. A real Alertmanager renders the
shipped templates, and posts the messages to servers of ours. What they got is laid out by this
file, since the clients of Slack, PagerDuty and Opsgenie are not to be had here: every word is
Alertmanager's, the frame is ours. The body of the e-mail is shown as it is.
"""

from __future__ import annotations

import asyncio
import html
import json
import random
import re
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.crash import start
from tests.deploy.receivers import mail_parts, mailbox, receiver_settings
from tests.deploy.tools import ROOT
from tests.exporters.browser import browser
from tests.exporters.real_alertmanager import alertmanager
from tests.exporters.stub import serve
from tests.ports import free_port
from tests.real import require
from tests.waiting import PATIENCE

HOURS = 20.0
BAD_HOURS = 0.75
EVERY = 30.0  # seconds between two traces
PAGE = "https://ragmeter.example.org"
WIDTH = 820
STYLE = """
body { margin: 0; padding: 20px 24px; background: #fff; color: #1d1c1d; width: 772px;
       font: 15px/1.46 "Liberation Sans", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
a { color: #1264a3; text-decoration: none } b { font-weight: 650 }
h1 { font-size: 17px; margin: 0 0 6px } small { color: #616061 }
pre { white-space: pre-wrap; background: #f6f6f7; padding: 12px;
      font: 13px/1.5 "Liberation Mono", "DejaVu Sans Mono", monospace; }
.bar { border-left: 4px solid #a30200; padding: 2px 0 2px 14px; margin-top: 8px }
.chip { display: inline-block; background: #a30200; color: #fff; border-radius: 3px;
        padding: 1px 8px; font-size: 13px; margin-right: 8px }
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ragmeter-messages-") as name:
        folder = Path(name)
        bodies = asyncio.run(collect(folder))
        with browser(require("chromedriver"), require("chromium"), folder / "profile") as page:
            for name, body in layouts(bodies).items():
                path = folder / f"{name}.html"
                path.write_text(body, encoding="utf-8")
                page.size(WIDTH, 300)
                page.open(path.as_uri())
                page.size(WIDTH, int(page.run("return document.documentElement.scrollHeight")))
                page.screenshot(ROOT / "docs" / "images" / f"message-{name}.png")
                sys.stdout.write(f"{name}\n")


async def collect(folder: Path) -> dict[str, Any]:
    """What each receiver got: JSON by the first part of its path, the e-mail as `email`."""
    write_traces(folder / "day.jsonl")
    async with serve() as stub, mailbox() as (host, messages):
        own = receiver_settings(folder, stub, host)
        binary = require("alertmanager", "prometheus-alertmanager")
        external = "https://alertmanager.example.org"
        ready = alertmanager(binary, folder, own=own, filled=True, external=external)
        async with ready as url:
            tree = {
                "segments": ["model"],
                "http": {"otlp_port": free_port(), "metrics_port": free_port()},
                "state": {"path": str(folder / "s")},
                "sampling": {"model": 0.1},
                "alerts": {"alertmanager_url": url, "page_url": PAGE},
            }
            (folder / "ragmeter.json").write_text(json.dumps(tree))
            config = folder / "ragmeter.json"
            replay = ("--replay", folder / "day.jsonl", "--exit-after-replay")
            # what fires in the end is sent at once
            assert start(folder, "run", "--config", config, *replay).wait() == 0
            agent = start(folder, "run", "--config", config)
            try:
                end = time.monotonic() + 10 * PATIENCE
                while len(stub.paths) < 3 or not messages:
                    assert time.monotonic() < end, (folder / "talk.txt").read_text()
                    await asyncio.sleep(0.5)
            finally:
                agent.kill()
                agent.wait()
    sent = {path.split("/")[1]: body for path, body in zip(stub.paths, stub.bodies, strict=True)}
    return sent | {"email": mail_parts(messages[0])}


def write_traces(path: Path) -> None:
    rng = random.Random(5)
    lines = (ROOT / "examples" / "mtrag.jsonl").read_text(encoding="utf-8").splitlines()
    traces = [trace for trace in map(json.loads, lines) if trace["service"] == "mtrag-chat"]
    now = time.time()
    count = int(HOURS * 3600 / EVERY)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            at = now - (count - number) * EVERY
            trace = rng.choice(traces)
            new = at > now - BAD_HOURS * 3600 and rng.random() < 0.5
            trace = trace | {
                "trace_id": f"{rng.randrange(16**8):08x}",
                "service": "support",
                "timestamp": datetime.fromtimestamp(at, UTC).isoformat(),
                "model": "assistant-v2" if new else "assistant-v1",
                "answer": rng.choice(traces)["answer"] if new else trace["answer"],
            }
            file.write(json.dumps(trace) + "\n")


def layouts(bodies: dict[str, Any]) -> dict[str, str]:
    """A page for each message, in a frame of our own."""
    slack = bodies["slack"]["attachments"][0]
    pager, mail = bodies["pagerduty"], bodies["email"]  # Opsgenie gets the text of PagerDuty
    links = " · ".join(
        f'<a href="{html.escape(link["href"])}">{html.escape(link["text"])}</a>'
        for link in pager["links"]
    )
    story = html.escape(pager["payload"]["custom_details"]["story"])
    return {
        "slack": _page(
            f'<b>Alertmanager</b> <small>in #rag-alerts</small><div class="bar"><h1>'
            f'<a href="{html.escape(slack["title_link"])}">{html.escape(slack["title"])}</a></h1>'
            f"{_mrkdwn(slack['text'])}</div>"
        ),
        "pagerduty": _page(
            f'<h1><span class="chip">{pager["payload"]["severity"]}</span>'
            f"{html.escape(pager['payload']['summary'])}</h1><small>component "
            f"{html.escape(pager['payload']['component'])}</small><p>{links}</p><pre>{story}</pre>"
        ),
        "email": mail["text/html"].replace(
            "<body", f"<body><p><small>Subject: {html.escape(mail['subject'])}</small></p><div", 1
        ),
    }


def _mrkdwn(text: str) -> str:
    """Slack's markup as HTML; it escapes the same three characters."""
    text = re.sub(r"<(https?://[^|>]+)\|([^>]*)>", r'<a href="\1">\2</a>', text.strip())
    return re.sub(r"\*([^*\n]+)\*", r"<b>\1</b>", text).replace("\n", "<br>")


def _page(body: str) -> str:
    return f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style>{body}'


if __name__ == "__main__":
    main()
