from __future__ import annotations

from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmeter.exporters.page.markup import Markup, clip, el, join, one_line, visible


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(max_size=60))
def test_no_text_becomes_markup(text: str) -> None:
    reader = Reader()
    reader.feed(el("p", text, title=text))
    reader.close()
    assert [tag for tag, _ in reader.tags] == ["p"]
    assert reader.tags[0][1] == {"title": visible(text)}
    assert reader.text == visible(text)


def test_children_of_all_kinds() -> None:
    made = el("ul", None, [el("li", "a & b"), "<i>"], hidden=True, class_="x", data_n=3, title=None)
    assert made == '<ul hidden class="x" data-n="3"><li>a &amp; b</li>&lt;i&gt;</ul>'
    assert isinstance(made, Markup)
    assert join("a", ["b", ["c"]]) == "abc"


def test_void_elements_are_closed_for_svg_too() -> None:
    assert el("line", x1=0) == '<line x1="0"/>'
    with pytest.raises(ValueError, match="no children"):
        el("br", "text")


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("a\u202eb", "a⟦U+202E⟧b"),
        ("\x00\x1b[31m", "⟦U+0000⟧⟦U+001B⟧[31m"),
        ("a\u200b\ufeff", "a⟦U+200B⟧⟦U+FEFF⟧"),
        ("\U000e0041", "⟦U+E0041⟧"),
        ("\ud800", "⟦U+D800⟧"),
        ("\r\n", "⟦U+000D⟧\n"),
    ],
)
def test_what_would_not_be_seen_is_written_out(hidden: str, shown: str) -> None:
    assert visible(hidden) == shown


def test_what_scripts_need_stays() -> None:
    for text in ("می\u200cخواهم", "👩\u200d🚀", "שלום", "a\tb\nc", "naïve é"):
        assert visible(text) == text


def test_length_is_bounded() -> None:
    assert clip("abc", 3) == "abc"
    assert clip("x" * 2000, 10) == "x" * 10 + "… (+1,990 characters)"
    assert one_line(" a \n b ", 10) == "a b"
    assert one_line("word " * 100_000, 8) == "word wor…"
    assert one_line(" " * 10_000 + "x", 8) == "…"
    assert unescape(el("p", "&amp;")) == "<p>&amp;</p>"
