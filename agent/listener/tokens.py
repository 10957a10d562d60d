"""Bearer tokens from the settings or a file: held as hashes only, compared in constant time."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from hashlib import sha256
from pathlib import Path

from pydantic import SecretStr

from agent.config import ConfigError

__all__ = ["Tokens", "presented"]

MIN_CHARS = 16  # 64 bits of hexadecimal: not to be found by trying over a network
MAX_TOKENS = 16  # old and new while they are rotated; each is compared for each request
MAX_CHARS = 8192  # of a file; more is another file
SOUND = re.compile(r"[\x21-\x7e]+")


def presented(header: str | None) -> bytes | None:
    """The token of an `Authorization` header: `Bearer TOKEN`, or the password of `Basic`, which is
    what a browser can ask for; the user's name does not matter."""
    scheme, _, value = (header or "").strip().partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return value.encode("utf-8", "surrogateescape")
    if scheme.lower() != "basic":
        return None
    try:
        _, colon, password = base64.b64decode(value, validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return password if colon else None


class Tokens:
    """The tokens of one setting (`http.token`), separated by blanks or lines.

    Raises `ConfigError`, whose text shows none of them.
    """

    def __init__(self, key: str, text: SecretStr | None = None, file: Path | None = None) -> None:
        self._key = key
        self._file = file
        self._held: tuple[bytes, ...] = ()
        if file is not None:
            self._held = self._read()
        elif text is not None:
            self._held = self._hashes(text.get_secret_value(), key)

    def __bool__(self) -> bool:
        return bool(self._held)

    def __repr__(self) -> str:
        return f"Tokens({self._key}, {len(self._held)})"

    def match(self, token: bytes) -> bool:
        """Whether it is one of them. The time says neither which nor how much of it is right."""
        found = False
        digest = sha256(token).digest()
        for held in self._held:
            found |= hmac.compare_digest(held, digest)
        return found

    def reread(self) -> bool:
        """Reads the file again; whether other tokens hold now. Raises `ConfigError` where it
        cannot be: then the old ones still hold."""
        if self._file is None:
            return False
        before, self._held = self._held, self._read()
        return self._held != before

    def _read(self) -> tuple[bytes, ...]:
        assert self._file is not None
        where = f"{self._key}_file: {self._file}"
        try:
            with self._file.open(encoding="utf-8") as source:
                text = source.read(MAX_CHARS + 1)
        except OSError as error:
            raise ConfigError(f"{where}: {error.strerror or 'cannot be read'}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{where}: no UTF-8 text") from None
        return self._hashes(text, where)

    @staticmethod
    def _hashes(text: str, where: str) -> tuple[bytes, ...]:
        tokens = text.split()
        if not tokens:
            raise ConfigError(f"{where}: there is no token in it")
        if len(text) > MAX_CHARS or len(tokens) > MAX_TOKENS:
            raise ConfigError(f"{where}: at most {MAX_TOKENS} tokens in {MAX_CHARS} characters")
        for number, token in enumerate(tokens, 1):
            if len(token) < MIN_CHARS or not SOUND.fullmatch(token):
                raise ConfigError(
                    f"{where}: token {number} needs {MIN_CHARS} or more characters of printable"
                    " ASCII; `openssl rand -hex 32` makes a good one"
                )
        return tuple(sha256(token.encode("ascii")).digest() for token in tokens)
