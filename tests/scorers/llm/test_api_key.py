from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr
from ragmeter.scorers.llm.transport import ApiKey


def test_a_key_is_sent_as_bearer_and_shown_nowhere() -> None:
    key = ApiKey(SecretStr(" sk-1 \n"), None)
    assert key.header == "Bearer sk-1"
    assert "sk-1" not in repr(key)
    assert repr(ApiKey(None, None)) == "ApiKey(none)"


def test_no_key_no_header() -> None:
    key = ApiKey(None, None)
    assert key.header is None
    assert key.problem is None
    assert not key.reread()


def test_user_and_password_of_the_url_count_where_there_is_no_key() -> None:
    assert ApiKey(None, None, b"me:p%40ss").header == "Basic bWU6cEBzcw=="
    assert ApiKey(SecretStr("sk-1"), None, b"me:pass").header == "Bearer sk-1"


def test_a_file_wins_and_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("first\n")
    key = ApiKey(SecretStr("other"), file)
    assert key.header == "Bearer first"
    assert not key.reread()
    file.write_text("second")
    assert key.reread()
    assert key.header == "Bearer second"


@pytest.mark.parametrize("text", ["Bearer sk-1", "bearer  sk-1", "Authorization: Bearer sk-1"])
def test_a_key_may_come_as_the_whole_header(text: str) -> None:
    assert ApiKey(SecretStr(text), None).header == "Bearer sk-1"


def test_a_file_may_begin_with_the_mark_of_an_editor(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes("\ufeffsk-1\r\n".encode())
    assert ApiKey(None, file).header == "Bearer sk-1"


def test_a_file_that_is_away_for_a_moment_leaves_the_old_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("first")
    key = ApiKey(None, file)
    file.unlink()
    assert not key.reread()
    assert key.header == "Bearer first"
    assert (
        key.problem
        == f"the key file {file} (api_key_file) cannot be read: No such file or directory"
    )


@pytest.mark.parametrize("text", ["", "  \n", "a b", "line\r\nX-Evil: 1", "schlüssel", "x" * 9000])
def test_what_is_no_key_is_not_sent(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    for key in (ApiKey(None, file), ApiKey(SecretStr(text), None)):
        assert key.header is None
        assert key.problem is not None
        assert text not in key.problem or not text


def test_a_file_that_is_no_text_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xff\xfe\x00")
    assert ApiKey(None, file).problem is not None
    assert ApiKey(None, tmp_path).problem is not None
