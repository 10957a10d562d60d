"""The shipped receivers, with servers of our own for Slack, PagerDuty and the others."""

from __future__ import annotations

import asyncio
import email
import email.policy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.exporters.stub import Stub

__all__ = ["mail_parts", "mailbox", "receiver_settings"]

FOLDER = Path(__file__).parents[2] / "deploy" / "alertmanager"


@asynccontextmanager
async def mailbox() -> AsyncIterator[tuple[str, list[bytes]]]:
    """An SMTP server that takes everything: its address, and the messages."""
    messages: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := await reader.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                writer.write(b"354 go on\r\n")
                data = (await reader.readuntil(b"\r\n.\r\n"))[:-5]
                messages.append(data.replace(b"\r\n..", b"\r\n."))  # RFC 5321, section 4.5.2
            writer.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 fine\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=2**20)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"{host}:{port}", messages


def receiver_settings(folder: Path, stub: Stub, smarthost: str) -> dict[str, Any]:
    """The shipped receivers with addresses of our own, and a short wait for other alerts."""
    (secret := folder / "secret").write_text(f"{stub.url}/slack")
    tree: dict[str, Any] = yaml.safe_load((FOLDER / "receivers.yml").read_text("utf-8"))
    tree["templates"] = [str(FOLDER / "ragmeter.tmpl")]
    tree["route"] |= {"group_wait": "1s", "group_interval": "300ms"}
    (everyone,) = tree["receivers"]
    everyone["slack_configs"][0]["api_url_file"] = str(secret)
    pager = {"url": f"{stub.url}/pagerduty", "routing_key_file": str(secret)}
    everyone["pagerduty_configs"][0] |= pager
    opsgenie = {"api_url": f"{stub.url}/opsgenie/", "api_key_file": str(secret)}
    everyone["opsgenie_configs"][0] |= opsgenie
    everyone["email_configs"][0] |= {"smarthost": smarthost, "require_tls": False}
    return tree


def mail_parts(message: bytes) -> dict[str, str]:
    """The subject and the bodies of an e-mail by type."""
    parsed = email.message_from_bytes(message, policy=email.policy.default)
    bodies = {part.get_content_type(): part for part in parsed.walk() if not part.is_multipart()}
    texts = {name: str(part.get_content()) for name, part in bodies.items()}
    return texts | {"subject": str(parsed["Subject"])}
