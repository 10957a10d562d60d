"""Read the reply of a receiver: its words, whether it is a page, where it sends one to."""

from __future__ import annotations

import httpx

from ragmeter_exporters.endpoint import DeliveryEndpoint

_SHORTEST_SECRET = 5  # characters of a part of an address; `api` and `v2` are none
_MAX_WORDS = 2_048  # bytes of a reply that are read for its words


async def read_words(response: httpx.Response) -> str:
    """Return the start of what a reply says, printable and without secrets.

    A server that names the address that it does not know names the secret in it.
    """
    # late: they are needed where a delivery fails
    from ragmeter.scorers.llm.server_words import page_text, printable_words

    text = page_text(await _read_start(response)).strip()
    address = response.request.url
    for part in {*address.path.split("/"), *address.params.values()}:
        if len(part) >= _SHORTEST_SECRET:
            text = text.replace(part, "[...]")
    return f'it says "{printable_words(text)}"' if text else ""


def is_page(response: httpx.Response) -> bool:
    """Return whether a reply says that it is a web page."""
    kind: str = response.headers.get("content-type", "")
    return kind.startswith("text/html")


def redirected(response: httpx.Response, setting: str) -> str:
    """Return where a reply sends one to, and that it is not followed; "" where it does not."""
    location = response.headers.get("location")
    if location is None or not 300 <= response.status_code < 400:
        return ""
    try:
        # its path may hold a secret
        to = DeliveryEndpoint.parse(location).shown
    except ValueError:
        to = "another path"
    return f"redirected to {to}, which is not followed: name it in {setting}"


async def _read_start(response: httpx.Response) -> str:
    read = b""
    async for piece in response.aiter_bytes():
        read += piece[:_MAX_WORDS]
        if len(read) >= _MAX_WORDS:
            break
    return read.decode("utf-8", "replace")
