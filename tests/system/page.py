"""`python -m tests.system.page docs/reliability.md`: the story is told, checked, and its time line
written into the page between the marks. Nothing in the tables is written by hand."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from pathlib import Path

from tests.system.arrivals import Arrival
from tests.system.story import FACTOR, Told, play
from tests.system.test_end_to_end import BURNING, EXPECTED, check, judged
from tests.system.traffic import INCIDENTS, SWAP

__all__ = ["BEGIN", "END", "rows", "table"]

BEGIN, END = "<!-- time line: begin -->", "<!-- time line: end -->"


def rows(noted: Told) -> list[tuple[float, str]]:
    """Minute of the story, and the cells of what happened."""
    found = []
    for one in INCIDENTS:
        found.append((one.begin / 60, f"**{one.service}: {one.what}** | | |"))
        found.append((one.end / 60, f"**{one.service} is as before** | | |"))
    begins = {one.service: one.begin / 60 for one in INCIDENTS}
    ends = {one.service: one.end / 60 for one in INCIDENTS}
    for alert, service in EXPECTED:
        for status, key, since in [
            ("firing", "startsAt", begins),
            ("resolved", "endsAt", ends),
        ]:
            webhook = noted.receiver.of("webhook", status, alert, service)
            (through,) = noted.receiver.of("alertmanager", status, alert, service)
            at = noted.fired(through, key)
            own = _seconds(noted, webhook[0], at) if webhook else "folded"
            words = "fires" if status == "firing" else "resolves"
            text = (
                f"`{alert}` {words}, {service} | {at - since[service]:.0f} min | "
                f"{own}, {_seconds(noted, through, at)} | {_worst(noted, through, status)}"
            )
            found.append((at, text))
    for alert, service in BURNING:
        for status, words, since in [("firing", "fires", begins), ("resolved", "resolves", ends)]:
            others = noted.receiver.of("prometheus", status, alert, service)
            at = noted.minute(others[0 if status == "firing" else -1])
            after = f"{at - since[service]:.0f} min"
            found.append((at, f"`{alert}` {words}, {service} | {after} | from Prometheus | "))
    return sorted(found)


def _seconds(noted: Told, arrival: Arrival, minute: float) -> str:
    """How long it was under way, by the clock."""
    return f"{(noted.minute(arrival) - minute) * 60 / noted.factor:.1f} s"


def _worst(noted: Told, arrival: Arrival, status: str) -> str:
    if status != "firing":
        return ""
    worst = arrival.worst
    text = f"`{worst[0]}` and {len(worst) - 1} more" if len(worst) > 1 else f"`{worst[0]}`"
    if arrival.service == SWAP.service:
        bad, every = judged(noted, arrival)
        text += f" (people: {bad} of {every} hallucinated)"
    return text


def table(noted: Told) -> str:
    lines = [
        "| minute | what | after | on its way: webhook, Alertmanager | worst traces |",
        "| ---: | --- | ---: | ---: | --- |",
        *(f"| {minute:.0f} | {text} |" for minute, text in rows(noted)),
        "",
        f"Told {noted.factor:g} times faster, in {noted.gone:.0f} s with all starts, load"
        f" {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores; {len(noted.opened)} pages of worst"
        " traces were opened, all of them found.",
    ]
    return "\n".join(lines)


def main() -> None:
    page = Path(sys.argv[1])
    factor = float(sys.argv[2]) if len(sys.argv) > 2 else FACTOR
    with tempfile.TemporaryDirectory() as folder:
        noted = asyncio.run(play(Path(folder), factor=factor))
    check(noted)
    text = page.read_text("utf-8")
    new = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{table(noted)}\n{END}", text, flags=re.S)
    page.write_text(new, "utf-8")
    print(f"{noted.gone:.0f} s")


if __name__ == "__main__":
    main()
