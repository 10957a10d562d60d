"""Tokens of OAUTHBEARER: from a token endpoint by the client credentials grant, or from a file.

RFC 6749, section 4.4, and RFC 7628. Both clients ask their provider at every connection; all
providers of a process share a token while it lives. Neither client authenticates again on an open
connection: a broker with `connections.max.reauth.ms` closes it, and the client opens another.
"""

from __future__ import annotations

import asyncio
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from ragmeter.config.kafka import KafkaOAuth
from ragmeter.core.errors import Unavailable
from ragmeter.core.outgoing import find_proxy, make_tls_context

_SECONDS = 10.0  # to wait for the endpoint; less than what a command waits for a broker
_MAX_TOKEN_CHARS = 100_000  # tokens with the groups of a user have some thousands
_MAX_REASON_CHARS = 300
# Kafka's own clients fetch the next token after this part of the life of one.
_REFRESH_AFTER = 0.8
_UNKNOWN_LIFE = 60.0  # seconds; RFC 6749 only recommends that `expires_in` is given


# An OSError: what both clients take for a failed connection, and try again.
class TokenUnavailable(Unavailable, OSError):
    """No token can be had now; one line says from where and why."""


class AiokafkaTokens(AiokafkaTokenProvider):  # type: ignore[misc]  # it has no types
    """What aiokafka, and Faust with it, asks for tokens."""

    def __init__(self, oauth: KafkaOAuth) -> None:
        self._oauth = oauth

    async def token(self) -> str:
        """Return a token that is valid now."""
        return await asyncio.to_thread(read_token, self._oauth)

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions."""
        return self._oauth.extensions


class KafkaPythonTokens(KafkaPythonTokenProvider):  # type: ignore[misc]  # it has no types
    """What kafka-python asks for tokens."""

    def __init__(self, oauth: KafkaOAuth) -> None:
        self._oauth = oauth

    def token(self) -> str:
        """Return a token that is valid now."""
        return read_token(self._oauth)

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions."""
        return self._oauth.extensions


def read_token(oauth: KafkaOAuth) -> str:
    """Return a token that is valid now; may wait for the token endpoint.

    Raises:
        TokenUnavailable: There is none.
    """
    if oauth.token_file is not None:
        token = _read_line("token_file", oauth.token_file)
        if not _is_token(token):
            raise TokenUnavailable(f"kafka.security.oauth.token_file: {oauth.token_file}: no token")
        return token
    if oauth.token_url is None or oauth.client_id is None:
        raise RuntimeError("the settings ask for them")
    secret = oauth.client_secret
    endpoint = _shared_endpoint(
        oauth.token_url,
        client_id=oauth.client_id,
        secret=None if secret is None else secret.get_secret_value(),
        secret_file=oauth.client_secret_file,
        scope=oauth.scope,
    )
    return endpoint.token()


class _TokenEndpoint:
    """A token endpoint and the last token of it; may be asked from several threads."""

    def __init__(
        self,
        url: str,
        *,
        client_id: str,
        secret: str | None,
        secret_file: Path | None,
        scope: str | None,
    ) -> None:
        self._url = url
        self._client_id = client_id
        self._secret = secret
        self._secret_file = secret_file
        self._scope = scope
        self._token = ""
        self._refresh_at = 0.0  # as time.monotonic() has it, as the next
        self._ends_at = 0.0
        self._lock = threading.Lock()

    def token(self) -> str:
        with self._lock:
            if time.monotonic() >= self._refresh_at:
                try:
                    self._fetch()
                except TokenUnavailable:
                    if time.monotonic() >= self._ends_at:
                        raise
            return self._token

    def _fetch(self) -> None:
        secret = self._secret
        if secret is None:
            if self._secret_file is None:
                raise RuntimeError("the settings ask for one of them")
            # Read anew, as a secret may be changed while a worker runs.
            secret = _read_line("client_secret_file", self._secret_file)
        form = {"grant_type": "client_credentials"}
        if self._scope is not None:
            form["scope"] = self._scope
        asked_at = time.monotonic()
        try:
            with httpx.Client(
                verify=make_tls_context(),
                proxy=find_proxy(self._url),
                trust_env=False,
                timeout=_SECONDS,
            ) as client:
                # RFC 6749, section 2.3.1: both are encoded as in a form.
                credentials = httpx.BasicAuth(quote(self._client_id, ""), quote(secret, ""))
                reply = client.post(
                    self._url,
                    data=form,
                    auth=credentials,
                    headers={"Accept": "application/json"},
                )
        except httpx.HTTPError as error:
            raise self._failed(str(error) or type(error).__name__) from None
        try:
            body = reply.json()
        except ValueError:
            body = None
        fields = body if isinstance(body, dict) else {}
        token: Any = fields.get("access_token")
        if not reply.is_success:
            words = (fields.get("error"), fields.get("error_description"))
            said = ": ".join(word for word in words if isinstance(word, str))
            raise self._failed(f"status {reply.status_code} {said}".strip())
        if not _is_token(token):
            raise self._failed("no access_token in its reply")
        life = _read_seconds(fields.get("expires_in"))
        self._token = token
        self._refresh_at = asked_at + life * _REFRESH_AFTER
        self._ends_at = asked_at + life

    def _failed(self, reason: str) -> TokenUnavailable:
        parts = urlsplit(self._url)  # its query may be secret
        host = parts.netloc.rpartition("@")[2]
        line = " ".join("".join(c if c.isprintable() else " " for c in reason).split())
        return TokenUnavailable(
            f"no token from {parts.scheme}://{host}{parts.path} (kafka.security.oauth):"
            f" {line[:_MAX_REASON_CHARS]}"
        )


@cache  # one for all clients of the process, so that they share its token
def _shared_endpoint(
    url: str,
    *,
    client_id: str,
    secret: str | None,
    secret_file: Path | None,
    scope: str | None,
) -> _TokenEndpoint:
    return _TokenEndpoint(
        url, client_id=client_id, secret=secret, secret_file=secret_file, scope=scope
    )


def _is_token(value: object) -> bool:
    """Return whether a value can stand in a bearer header: printable ASCII without blanks."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= _MAX_TOKEN_CHARS
        and value.isascii()
        and value.isprintable()
        and " " not in value
    )


def _read_seconds(value: object) -> float:
    """Return the life of a token by `expires_in`, which some servers give as a text."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return _UNKNOWN_LIFE
    return seconds if 0 < seconds < float("inf") else _UNKNOWN_LIFE


def _read_line(name: str, path: Path) -> str:
    try:
        text = path.read_text("utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise TokenUnavailable(f"kafka.security.oauth.{name}: {path}: {why}") from None
    if not text or "\n" in text:
        raise TokenUnavailable(f"kafka.security.oauth.{name}: {path}: one line is needed")
    return text
