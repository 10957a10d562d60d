"""The URL of a receiver, apart from the credentials in it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class DeliveryEndpoint:
    """A URL without its credentials, the credentials, and the form that logs may show."""

    url: str
    auth: tuple[str, str] | None
    shown: str

    @classmethod
    def parse(cls, url: str) -> DeliveryEndpoint:
        """Take a URL apart.

        Raises:
            ValueError: It is not http(s) with a host; the text does not hold the URL.
        """
        try:
            parts = urlsplit(url)
            host = parts.hostname
            port = parts.port
        except ValueError:
            raise ValueError("not a valid URL") from None
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError("an http:// or https:// URL with a host is needed")
        name = f"[{host}]" if ":" in host else host
        address = name if port is None else f"{name}:{port}"
        auth = None
        if parts.username is not None:
            auth = (unquote(parts.username), unquote(parts.password or ""))
        bare = urlunsplit((parts.scheme, address, parts.path, parts.query, ""))
        # Chat webhooks carry their secret in the path or query: only scheme and host are shown.
        return cls(bare, auth, f"{parts.scheme}://{address}")
