"""Cards of alerts."""

from __future__ import annotations

import re

from exporters.page.alerts import alerts_section
from tests.exporters.alerts import drifted


def text_of(html: str) -> str:
    return re.sub(r"<[^>]+>", "", html)


def test_drift_is_told_from_what_to_what_since_when_and_where() -> None:
    html = str(alerts_section([drifted()], 1060.0))
    assert "model=&lt;b&gt;" in html
    text = text_of(html)
    assert "0.8 → 0.6 (0.55 – 0.65)" in text
    assert "detector 5.12e+04 ≥ 4.32e+04" in text
    assert "changed 1970-01-01 00:11:40 UTC" in text
    assert "judge ab12cd34ef56" in text


def test_a_share_names_its_edge_and_an_end_keeps_the_change() -> None:
    alert = drifted(state="resolved", resolved_at=1100.0, drift={"edge": 0.5, "segment": None})
    text = text_of(str(alerts_section([alert], 1200.0)))
    assert "(0.55 – 0.65) above 0.5" in text
    assert "Resolved 1970-01-01 00:18:20 UTC" in text
    assert "changed" in text
    assert "most in" not in text
