"""The key of a judge's API: from the settings, or from a file that may be rotated."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

from pydantic import SecretStr

__all__ = ["ApiKey"]

# Keys are short and printable; anything else in the file is a mistake, and no header.
MAX_CHARS = 8192
SOUND = re.compile(r"[\x21-\x7e]+")


class ApiKey:
    """Holds the key as the value of the `Authorization` header; shows it nowhere.

    A file wins over a key in the settings: it can be rotated while we run. Neither: no header, as
    local servers want no key. User and password of the URL are for a gateway before the server;
    they count where there is no key.
    """

    def __init__(self, key: SecretStr | None, file: Path | None, userinfo: bytes = b"") -> None:
        self._file = file
        self.problem: str | None = None
        self._header: str | None = None
        if file is not None:
            self.reread()
        elif key is not None:
            self._take(key.get_secret_value())
        elif userinfo:
            self._header = f"Basic {base64.b64encode(unquote_to_bytes(userinfo)).decode()}"

    @property
    def header(self) -> str | None:
        return self._header

    def reread(self) -> bool:
        """Reads the file again. Whether the key is another one now."""
        if self._file is None:
            return False
        before = self._header
        try:
            with self._file.open(encoding="utf-8") as source:
                text = source.read(MAX_CHARS + 1)
        except (OSError, UnicodeDecodeError):
            self.problem = "the key file cannot be read"
            return False  # a file that is being replaced: the old key is better than none
        self._take(text)
        return self._header != before and self._header is not None

    def _take(self, text: str) -> None:
        text = text.strip()
        if len(text) > MAX_CHARS or not SOUND.fullmatch(text):
            self.problem = "the key is empty or no printable ASCII"
            return
        self.problem = None
        self._header = f"Bearer {text}"

    def __repr__(self) -> str:
        return f"ApiKey({'set' if self._header else 'none'})"
