"""Texts into which several documents were joined, and texts that are one."""

from __future__ import annotations

from ragmeter.ingest.conventions.joined_documents import split_joined_documents

from tests.tables import each_row

A = "Refunds take five days to arrive."
B = "Gift cards cannot be refunded at all."
EDGE = "+----+-----+\n"


@each_row(
    ("text", "ids"),
    [
        (
            f" id | content | score\n----+----+---\n 1 | {A} | 0.8\n 2 | {B} | 0.6\n(2 rows)\n",
            ["1", "2"],
        ),
        (f"| source | text |\n|---|---|\n| a.md | {A} |\n| b.md | {B} |", ["a.md", "b.md"]),
        (
            f"{EDGE}| id | content |\n{EDGE}| 1 | {A} |\n| 2 | {B} |\n{EDGE}"
            "2 rows in set (0.01 sec)",
            ["1", "2"],
        ),
        (f"file_path: a.md\npage_label: 1\n\n{A}\n\nfile_path: b.md\n\n{B}", ["a.md", "b.md"]),
        (
            f"# Refunds\nDocumentation URL:https://x/a\n\n{A}\n\n# Cards\nDocumentation URL:https://x/b\n\n{B}",
            ["https://x/a", "https://x/b"],
        ),
    ],
)
def test_documents_of_a_text(text: str, ids: list[str]) -> None:
    found = split_joined_documents(text) or []
    assert [one.id for one in found] == ids
    assert all(one.text.endswith(end) for one, end in zip(found, (A, B), strict=True))


def test_what_stands_behind_the_last_rule_is_no_part_of_the_last_record() -> None:
    text = f"Name: a\nContents: {A}\n----\nName: b\nContents: {B}\n----\nCite the name of each."
    assert [one.text for one in split_joined_documents(text) or []] == [A, B]


@each_row(
    "text",
    [
        "| Plan | Price |\n| --- | --- |\n| Basic plan for small shops | 5 EUR |",
        f"Our plans:\n| id | text |\n| --- | --- |\n| 1 | {A} |\n\n{B}",  # a table in an article
        f"source: a.md\n\n{A}\n\n{B}",
        f"# Refunds\n\n{A}\n\n# Cards\n\n{B}",
    ],
)
def test_one_text_stays_one(text: str) -> None:
    assert split_joined_documents(text) is None
