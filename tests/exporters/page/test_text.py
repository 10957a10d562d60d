from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from ragmeter_exporters.page.rendering import make_environment
from ragmeter_exporters.page.texts import clip, one_line, visible

from tests.tables import each_row

ROOT = Path(__file__).parents[3]


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def drawn(template: str, text: str) -> Reader:
    """A template of one line, in the environment of the pages."""
    reader = Reader()
    reader.feed(make_environment().from_string(template).render(text=text))
    reader.close()
    return reader


@given(st.text(max_size=60))
def test_no_text_becomes_markup(text: str) -> None:
    reader = drawn('<p title="{{ text }}">{{ text }}</p>', text)
    assert [tag for tag, _ in reader.tags] == ["p"]
    assert reader.tags[0][1] == {"title": visible(text)}
    assert reader.text == visible(text)


def test_no_template_turns_escaping_off() -> None:
    shared = [*(ROOT / "exporters").rglob("*.html")]
    of_parts = [*(ROOT / "agent").rglob("*.html")]
    assert len(shared) > 10
    assert of_parts
    for template in [*shared, *of_parts]:
        assert not re.search(r"\|\s*safe|autoescape|Markup", template.read_text()), template


@each_row(
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
