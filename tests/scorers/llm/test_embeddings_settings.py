from __future__ import annotations

from typing import Any

import pytest
from ragmeter.config.loader import ConfigError, load_settings

URL = {"base_url": "http://e/v1", "model": "m"}


@pytest.mark.parametrize(
    ("consistency", "why"),
    [
        ({"embeddings": {"base_url": "http://e/v1"}}, "needs model"),
        ({"embeddings": {"near": 0.9}}, "need base_url"),
        ({"embeddings": {"model": "m"}}, "need base_url"),
        ({"embeddings": {**URL, "base_url": "http://e/v1?key=k"}}, "base URL"),
        ({"embeddings": {**URL, "near": 0.2}}, "near"),
        ({"embeddings": {**URL, "dimensions": 10_000}}, "dimensions"),
        ({"embeddings": {**URL, "near": 0.9}, "queries": 501}, "at most 500"),
    ],
)
def test_what_cannot_be_is_refused(consistency: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_settings(environ={}, overrides={"consistency": consistency})


def test_from_the_environment() -> None:
    prefix = "RAGMETER_CONSISTENCY__EMBEDDINGS__"
    values = {"BASE_URL": "http://e/v1", "MODEL": "m", "API_KEY": "hush", "NEAR": "0.95"}
    found = load_settings(environ={prefix + name: value for name, value in values.items()})
    embeddings = found.consistency.embeddings
    assert (embeddings.near, embeddings.model) == (0.95, "m")
    assert "hush" not in repr(found)
