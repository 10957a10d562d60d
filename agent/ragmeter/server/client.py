"""Make the HTTP client by which commands reach a running agent, and its base URL."""

from __future__ import annotations

import ipaddress
import ssl
from contextlib import suppress
from typing import Any

import httpx

from ragmeter.config.inputs import HttpSettings
from ragmeter.config.loader import ConfigError


def agent_url(http: HttpSettings, port: int | None = None) -> str:
    """Return the base URL of the agent on this machine: of `port`, or its metrics port."""
    host = http.host if port is None else http.otlp_address
    if host == "*":
        host = "localhost"
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"
    shown = f"[{host}]" if ":" in host else host
    scheme = "http" if http.tls.cert_file is None else "https"
    return f"{scheme}://{shown}:{http.metrics_port if port is None else port}"


def agent_client(
    http: HttpSettings, url: str, seconds: float, *, sending: bool = False
) -> httpx.Client:
    """Make a client of the agent at a base URL; `seconds` limits the time of a request.

    With `sending` the token for sending traces is enough.

    Raises:
        ConfigError: A file of the settings cannot be read.
    """
    headers = {}
    if token := _token(http, "token") or (_token(http, "send_token") if sending else None):
        headers["Authorization"] = f"Bearer {token}"
    # trust_env would send requests for the loopback address to a proxy
    return httpx.Client(timeout=seconds, trust_env=False, headers=headers, verify=_trust(http, url))


def reply_object(reply: httpx.Response) -> dict[str, Any] | None:
    """Return the JSON object of a reply, None for any other body."""
    try:
        document = reply.json()
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _token(http: HttpSettings, name: str) -> str | None:
    given = getattr(http, name)
    path = getattr(http, f"{name}_file")
    text = given.get_secret_value() if given else ""
    if path is not None:
        try:
            text = path.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"http.{name}_file: {path}: cannot be read") from None
    return next(iter(text.split()), None)


def _trust(http: HttpSettings, url: str) -> ssl.SSLContext | bool:
    context = ssl.create_default_context()
    tls = http.tls
    if tls.cert_file is None or not url.startswith("https:"):
        return context
    try:
        context.load_verify_locations(cafile=tls.cert_file)
        if tls.client_ca_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file or tls.cert_file, password="")
    except OSError as error:
        raise ConfigError(f"http.tls.cert_file: {tls.cert_file}: {error.strerror}") from None
    if url in (agent_url(http), agent_url(http, http.otlp_port)):
        # trust exactly this certificate, whatever name it has
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = False
    return context
