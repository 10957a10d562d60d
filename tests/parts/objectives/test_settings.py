"""The settings of the part: which objectives there can be."""

from __future__ import annotations

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.loader import ConfigError


@pytest.mark.parametrize(
    ("slos", "words"),
    [
        ([{"name": "a", "bad": "slow"}], ["slos.0", "`slow` needs `seconds`"]),
        (
            [{"name": "a", "bad": "failed"}, {"name": "a", "bad": "failed"}],
            ["slos", "each name once"],
        ),
    ],
)
def test_a_mistake_names_key_and_what_is_allowed(slos: list[object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(environ={}, overrides={"slos": slos})
    assert all(word in str(raised.value) for word in words), raised.value
