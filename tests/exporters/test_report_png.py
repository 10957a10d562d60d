"""The picture: a PNG of the numbers given, the same each time, whatever the names are."""

from __future__ import annotations

import sys
import warnings

import pytest

from ragmeter.exporters import report_png as module
from ragmeter.exporters.report_png import MissingLibrary, draw_png
from tests.exporters.hostile_report import hostile, usual


def test_the_boxes_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    given = []

    def bxp(self: Axes, boxes: list[dict[str, object]], **_: object) -> None:
        given.extend(boxes)

    monkeypatch.setattr(Axes, "bxp", bxp)
    draw_png(usual())
    first = usual().columns[0].series[0].box
    assert first is not None
    assert len(given) == 2
    assert given[0] == {
        "med": first.median, "q1": first.q1, "q3": first.q3, "whislo": first.low,
        "whishi": first.high, "fliers": [],
    }  # fmt: skip


def test_the_same_bytes_and_what_they_show_in_words() -> None:
    found = draw_png(usual())
    assert found.startswith(b"\x89PNG\r\n")
    assert found == draw_png(usual())
    assert b"gpt-4: n = 10, mean 0.450" in found


def test_names_are_no_formulas_and_foreign_signs_no_trouble() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw_png(hostile()).startswith(b"\x89PNG\r\n")


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingLibrary, match=r"pip install 'ragmeter\[report\]'"):
        module.draw_png(usual())
