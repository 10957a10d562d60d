from __future__ import annotations

from typing import Any

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.loader import ConfigError, dump_settings

from tests.tables import each_row

HERE = "http://collector:4318"


def error(section: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={}, overrides={"results_export": section})
    return str(caught.value)


def test_nothing_is_sent_unless_asked_for() -> None:
    assert load_settings(environ={}).results_export.endpoint is None


def test_all_of_it_comes_from_the_environment() -> None:
    environ = {
        "RAGMETER_RESULTS_EXPORT__ENDPOINT": HERE,
        "RAGMETER_RESULTS_EXPORT__HEADERS": "authorization=Basic%20aHVzaA==,x-tenant=a",
    }
    settings = load_settings(environ=environ)
    section = settings.results_export
    assert section.endpoint
    assert section.endpoint.get_secret_value() == HERE
    assert section.headers
    assert "aHVzaA" in section.headers.get_secret_value()
    assert "aHVzaA" not in dump_settings(settings)
    assert "aHVzaA" not in repr(settings)


@each_row(
    "endpoint",
    ["collector:4318", "ftp://h", f"{HERE}/v1/logs", f"{HERE}/v1/traces/", f"{HERE}?k=v"],
)
def test_the_endpoint_is_a_base_url(endpoint: str) -> None:
    assert "results_export.endpoint" in error({"endpoint": endpoint})


def test_a_base_url_may_have_a_path() -> None:
    load_settings(environ={}, overrides={"results_export": {"endpoint": "https://h/otlp/v1"}})


@pytest.mark.parametrize(
    ("section", "word"),
    [
        ({"headers": "a=hush"}, "endpoint"),
        ({"headers_file": "hush"}, "endpoint"),
        ({"endpoint": HERE, "headers": "a=hush", "headers_file": "f"}, "not both"),
    ],
)
def test_what_makes_no_sense_together_is_a_mistake(section: dict[str, Any], word: str) -> None:
    text = error(section)
    assert word in text
    assert "a=hush" not in text
