"""The page names the segment that moved a mean, and nothing where nothing is known."""

from __future__ import annotations

import pytest
from ragmeter.windows.windows import Windows
from ragmeter_exporters.page.rendering import details_page
from ragmeter_exporters.page.views import details_view

from tests.exporters.broken_down import fallen
from tests.exporters.fakes import FakeAgent, as_agent_view, everything
from tests.exporters.page.test_pages import Page


def details(agent: FakeAgent) -> str:
    view = details_view(as_agent_view(agent), "bot")
    assert view is not None
    return details_page(view)


def read(agent: FakeAgent) -> str:
    return Page(details(agent)).text.replace("\u202f", " ")


def test_the_segment_that_fell_is_named_with_its_intervals() -> None:
    text = read(fallen())
    part = text.split("Where it changed")[1].split("Worst traces")[0]
    assert "last 1h, against the rest of 24h" in part
    assert "Of findings made this way at most 5 % are false" in part
    assert "answered" in part
    assert part.index("kind=b") < part.index("kind=a")
    assert "moved, unlike the rest" in part
    assert " points" in part
    assert "grounding" not in part.split("Finding")[1], "of what has not moved nothing is said"
    assert "no kind" in part, "the traffic without the tag"


def test_no_change_is_said_with_how_often_was_looked() -> None:
    part = read(fallen(drop=0.0)).split("Where it changed")[1]
    assert "No difference beyond chance in 14 comparisons (at most 5 % false findings)." in part


def test_too_few_is_no_number() -> None:
    part = read(fallen(few=8)).split("Where it changed")[1].split("Worst traces")[0]
    assert "kind=c" not in part or "not enough answers yet (8)" in part


def test_without_sums_nothing_is_compared() -> None:
    assert "Nothing to compare yet: too few scores, or all in one segment." in read(everything())


def test_the_name_of_a_segment_is_text() -> None:
    page = details(fallen(tag="<b>x</b>\u202e"))
    assert "<b>x" not in page
    assert "&lt;b&gt;x&lt;/b&gt;⟦U+202E⟧=b" in page


def test_segments_without_traffic_are_counted_and_fill_no_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = fallen()
    monkeypatch.setattr(
        Windows,
        "count_traces",
        lambda self, service, segment, window: 0 if segment.endswith("=b") else 3,
    )
    part = read(agent).split("Segments last 1h")[1].split("Where it changed")[0]
    assert part.startswith(" · 1 more without traffic")
    assert "kind=a" in part
    assert "kind=b" not in part
