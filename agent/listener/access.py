"""Who may ask a port for what: the settings `http.*` as things that decide.

Three tokens, from wide to narrow: `token` opens everything, `send_token` sending traces,
`scrape_token` `/metrics`. What no token opens is open on loopback, and otherwise only with
`accept: open` or to whoever has a certificate of `http.tls.client_ca_file`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Literal
from urllib.parse import urlsplit

from agent.config import ConfigError, Settings
from agent.listener.certificate import Certificate
from agent.listener.tokens import Tokens
from agent.settings.http import Http

__all__ = ["Access", "Scope", "is_loopback", "is_own_name", "mistake"]

log = logging.getLogger("ragmeter")

REREAD_SECONDS = 10.0  # mounted secrets change without a signal; a look is a few small files

Scope = Literal["send", "scrape", "read"]
SINGLE = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?")


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine (or Pod) reaches what listens there."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False  # a name may mean anything by tomorrow
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_own_name(host: str, names: Iterable[str]) -> bool:
    """Whether the `Host` of a request is one that a page of another site cannot have: an address,
    a single word (no public name is one), or one of `names`. Else its name may have been pointed
    here (DNS rebinding), and its scripts would read what we answer."""
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    name = name.rstrip(".")
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        local = name.endswith(".localhost") or SINGLE.fullmatch(name) is not None
        return local or name in {one.lower().rstrip(".") for one in names}
    return True


def mistake(http: Http, *, traces: bool) -> str | None:
    """What is missing for listening where `http` says; `traces`: on the port for traces, too."""
    for key, host in [("host", http.host), *([("otlp_host", http.otlp_address)] if traces else [])]:
        if is_loopback(host):
            continue
        what = f"http.{key} is {host}, which is reachable from other machines"
        if not (_has_token(http) or http.tls.client_ca_file or "open" in http.accept):
            return (
                f"{what}: set http.token_file (or RAGMETER_HTTP__TOKEN), or http.tls with"
                " client_ca_file; or say that anybody who reaches it may read traces and send"
                " some: http.accept: [open]"
            )
        if http.tls.cert_file is None and "plain" not in http.accept:
            return (
                f"{what}: set http.tls.cert_file and key_file, or say that traces and tokens may"
                " cross the network unencrypted: http.accept: [plain]"
            )
    return None


def _has_token(http: Http) -> bool:
    given = ("token", "send_token", "scrape_token")
    return any(getattr(http, key) or getattr(http, f"{key}_file") for key in given)


class Access:
    """Tokens and certificate of a process's ports.

    `traces`: whether there is a port for traces. Raises `ConfigError`.
    """

    def __init__(self, settings: Settings, *, traces: bool = True) -> None:
        http = settings.http
        if missing := mistake(http, traces=traces):
            raise ConfigError(missing)
        self.http = http
        self.names = frozenset((*http.names, *_hosts(settings.alerts.page_url)))
        everything = Tokens("http.token", http.token, http.token_file)
        self._tokens: dict[Scope, tuple[Tokens, ...]] = {
            "read": (everything,),
            "send": (everything, Tokens("http.send_token", http.send_token, http.send_token_file)),
            "scrape": (
                everything,
                Tokens("http.scrape_token", http.scrape_token, http.scrape_token_file),
            ),
        }
        self.certificate = Certificate(http.tls) if http.tls.cert_file else None
        self.wants_certificate = http.tls.client_ca_file is not None
        self.refused: dict[str, Counter[str]] = {}
        """How often what was not let in, by the name of the port and the reason."""
        self._problems: frozenset[str] = frozenset()

    def guarded(self, scope: Scope) -> bool:
        """Whether there are tokens that open it."""
        return any(self._tokens[scope])

    def opens(self, scope: Scope, token: bytes) -> bool:
        """Every token is compared, so that the time does not say which one it is like."""
        return sum(tokens.match(token) for tokens in self._tokens[scope]) > 0

    def free(self, host: str) -> bool:
        """Whether what no token opens is open to all on that address."""
        return is_loopback(host) or "open" in self.http.accept

    def refusals(self, port: str) -> Counter[str]:
        return self.refused.setdefault(port, Counter())

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Changes of the files are noticed."""

        async def watch() -> None:
            while True:
                await asyncio.sleep(REREAD_SECONDS)
                await asyncio.to_thread(self.reread)

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    def reread(self) -> None:
        """Tokens and certificate as their files have them now. What is unsound is logged once,
        and what was there before holds."""
        problems: set[str] = set()
        files = {*self._tokens["send"], *self._tokens["scrape"]}
        for name, one in (("tokens", each) for each in files):
            self._reread_one(name, one, problems)
        if self.certificate is not None:
            self._reread_one("certificate", self.certificate, problems)
        for problem in sorted(problems - self._problems):
            log.error("%s; what was there before holds", problem)
        self._problems = frozenset(problems)

    @staticmethod
    def _reread_one(name: str, one: Tokens | Certificate, problems: set[str]) -> None:
        try:
            if one.reread():
                log.warning("%s read again, in force from now on: %r", name, one)
        except ConfigError as error:
            problems.add(str(error))


def _hosts(url: str | None) -> Iterable[str]:
    host = urlsplit(url).hostname if url else None
    return (host,) if host else ()
