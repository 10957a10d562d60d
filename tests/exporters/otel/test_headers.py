from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr
from ragmeter.config.loader import ConfigError
from ragmeter_exporters.otel.headers import ReceiverHeaders

from tests.tables import each_row


def of(text: str) -> dict[str, str]:
    return ReceiverHeaders(SecretStr(text), None).current()


def test_pairs_are_those_of_opentelemetry() -> None:
    assert of("Authorization=Basic%20aHVzaA==, x-tenant = a%2Cb ,") == {
        "authorization": "Basic aHVzaA==",
        "x-tenant": "a,b",
    }
    assert of("authorization=Basic aHVzaA==") == {"authorization": "Basic aHVzaA=="}


def test_none_are_none() -> None:
    assert ReceiverHeaders(None, None).current() == {}


@each_row(
    "text",
    [
        "hush",
        "=hush",
        "a b=hush",
        "x=hu\nsh",
        "x=hu%0Ash",
        "x=húsh",
        "host=hush",
        "Content-Length=hush",
        "a=1,hush",
    ],
)
def test_a_mistake_shows_no_value(text: str) -> None:
    with pytest.raises(ConfigError, match=r"results_export\.headers: ") as caught:
        of(text)
    assert "hush" not in str(caught.value)
    assert "hu" not in str(caught.value)


def test_a_file_is_read_anew_and_its_last_good_headers_hold(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer one:two\n\nx-tenant:a%20b\n")
    headers = ReceiverHeaders(None, file)
    assert headers.current() == {"authorization": "Bearer one:two", "x-tenant": "a%20b"}
    file.write_text("authorization: Bearer three")
    assert headers.current() == {"authorization": "Bearer three"}
    for broken in ("no header", "x" * 100_000):
        file.write_text(broken)
        assert headers.current() == {"authorization": "Bearer three"}
    file.write_bytes(b"\xff\xfe")
    assert headers.current() == {"authorization": "Bearer three"}
    file.unlink()
    assert headers.current() == {"authorization": "Bearer three"}


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"hush", b"x" * 100_000])
def test_a_file_that_cannot_be_used_is_said_at_the_start(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "headers"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"results_export\.headers_file: ") as caught:
        ReceiverHeaders(None, file)
    assert "hush" not in str(caught.value)
