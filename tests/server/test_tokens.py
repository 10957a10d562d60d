from __future__ import annotations

import base64
import hmac
from pathlib import Path

import pytest
from pydantic import SecretStr
from ragmeter.config.loader import ConfigError
from ragmeter.server.access import BearerTokens, parse_authorization

from tests.tables import each_row

OLD, NEW = "old-token-0123456789", "new-token-0123456789"


def given(text: str) -> BearerTokens:
    return BearerTokens("http.token", SecretStr(text))


def basic(text: bytes) -> str:
    return f"Basic {base64.b64encode(text).decode()}"


@each_row(
    ("header", "token"),
    [
        (f"Bearer {OLD}", OLD.encode()),
        (f"bearer  {OLD} ", OLD.encode()),
        (basic(f"anybody:{OLD}".encode()), OLD.encode()),
        (basic(f":{OLD}:x".encode()), f"{OLD}:x".encode()),
        (basic(OLD.encode()), None),
        ("Basic !!!", None),
        (f"Token {OLD}", None),
        (OLD, None),
        ("", None),
        (None, None),
        ("Bearer \udcff", b"\xff"),
    ],
)
def test_what_a_header_presents(header: str | None, token: bytes | None) -> None:
    assert parse_authorization(header) == token


def test_each_of_several_is_valid_and_nothing_else(tmp_path: Path) -> None:
    held = given(f"{OLD} {NEW}\n")
    assert held.match(OLD.encode())
    assert held.match(NEW.encode())
    for wrong in (b"", OLD[:-1].encode(), f"{OLD} {NEW}".encode(), OLD.upper().encode()):
        assert not held.match(wrong)
    assert not BearerTokens("http.token").match(b"")


def test_every_comparison_takes_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are compared by `hmac.compare_digest`, on digests of one length, whatever matches."""
    seen: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        seen.append((a, b))
        return real(a, b)

    held = given(f"{OLD} {NEW}")
    monkeypatch.setattr("ragmeter.server.access.hmac.compare_digest", compare)
    for token in (OLD.encode(), NEW.encode(), b"x"):
        seen.clear()
        held.match(token)
        assert [len(one) for pair in seen for one in pair] == [32] * 4


def test_no_token_is_held_or_shown() -> None:
    held = given(OLD)
    assert OLD not in repr(held)
    assert OLD not in repr(vars(held))


@each_row(
    ("text", "words"),
    [
        ("", "no token"),
        ("short", "16 or more"),
        (f"{OLD} short", "token 2"),
        ("schlüssel-schlüssel", "printable"),
        (" ".join([OLD] * 17), "at most 16"),
        ("x" * 9000, "8192"),
    ],
)
def test_a_weak_or_broken_one_is_a_mistake_that_shows_nothing(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        given(text)
    assert "http.token" in str(error.value)
    assert not text or text[:5] not in str(error.value)


def test_a_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{OLD}\n")
    held = BearerTokens("http.token", None, file)
    assert not held.reread()
    file.write_text(f"{NEW}\n{OLD}\n")
    assert held.reread()
    assert held.match(NEW.encode())
    assert held.match(OLD.encode())
    for broken in (b"", b"\xff\xfe", b"short"):
        file.write_bytes(broken)
        with pytest.raises(ConfigError, match=str(file)):
            held.reread()
        assert held.match(NEW.encode())
    file.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        held.reread()
    assert held.match(NEW.encode())
    file.write_text(NEW)
    assert held.reread()
    assert not held.match(OLD.encode())
