"""The paths of a running agent's pages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from ragmeter.server.paths import read_segment, service_path, trace_path
from yarl import URL

from tests.tables import each_row


@each_row(
    ("service", "path"),
    [
        ("bot", "/service/bot"),
        (".", "/service/.~"),
        ("..", "/service/..~"),
        ("..~", "/service/..~~"),
        ("...", "/service/..."),
        ("~", "/service/~"),
        ("a/../b", "/service/a%2F..%2Fb"),
        ("a\nb%2e", "/service/a%0Ab%252e"),
        ("\ud800", "/service/%3F"),
    ],
)
def test_names_are_quoted_so_that_no_client_changes_the_path(service: str, path: str) -> None:
    assert service_path(service) == path


@given(st.lists(st.text(".~a", min_size=1), min_size=2, max_size=2))
def test_a_name_survives_its_path(names: list[str]) -> None:
    url = URL(f"http://host{trace_path(*names)}")
    assert [read_segment(part) for part in url.parts[2:]] == names
