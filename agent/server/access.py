"""Access policy of the HTTP ports: bearer tokens, TLS certificate and exposure checks.

Who may ask a port for what: the settings `http.*` as things that decide.

Three tokens, from wide to narrow: `token` opens everything, `send_token` sending traces,
`scrape_token` `/metrics`. What no token opens is open on loopback, and otherwise only with
`accept: open` or to whoever has a certificate of `http.tls.client_ca_file`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import ipaddress
import logging
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from ragmeter.config.inputs import HttpSettings, TlsSettings
from ragmeter.config.loader import ConfigError
from ragmeter.config.settings import Settings

_MIN_TOKEN_CHARS = 16  # 64 bits of hexadecimal: not to be found by trying over a network
_MAX_TOKENS = 16  # old and new while they are rotated; each is compared for each request
MAX_TOKEN_FILE_CHARS = 8192  # of a file; more is another file
_TOKEN_PATTERN = re.compile(r"[\x21-\x7e]+")


def parse_authorization(header: str | None) -> bytes | None:
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


class BearerTokens:
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
                text = source.read(MAX_TOKEN_FILE_CHARS + 1)
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
        if len(text) > MAX_TOKEN_FILE_CHARS or len(tokens) > _MAX_TOKENS:
            raise ConfigError(
                f"{where}: at most {_MAX_TOKENS} tokens in {MAX_TOKEN_FILE_CHARS} characters"
            )
        for number, token in enumerate(tokens, 1):
            if len(token) < _MIN_TOKEN_CHARS or not _TOKEN_PATTERN.fullmatch(token):
                raise ConfigError(
                    f"{where}: token {number} needs {_MIN_TOKEN_CHARS} or more characters of printable"
                    " ASCII; `openssl rand -hex 32` makes a good one"
                )
        return tuple(sha256(token.encode("ascii")).digest() for token in tokens)


class ServerCertificate:
    """`context` is for connections that begin now. Raises `ConfigError`."""

    def __init__(self, tls: TlsSettings) -> None:
        assert tls.cert_file is not None, "without a certificate there is no TLS"
        self._tls = tls
        self._read = self._digest()
        self.context = self._make()

    def __repr__(self) -> str:
        return f"Certificate({self._tls.cert_file})"

    def reread(self) -> bool:
        """Whether the files have changed, and hold from now on. Raises `ConfigError` where they
        do not fit together (being replaced just now, perhaps): then the old ones still hold."""
        digest = self._digest()
        if digest == self._read:
            return False
        self.context = self._make()
        self._read = digest
        return True

    def _files(self) -> dict[str, Path]:
        files = {name: getattr(self._tls, name) for name in type(self._tls).model_fields}
        return {name: file for name, file in files.items() if file is not None}

    def _digest(self) -> bytes:
        found = sha256()
        for name, file in self._files().items():
            try:
                found.update(sha256(file.read_bytes()).digest())
            except OSError as error:
                raise _certificate_error(name, file, error) from None
        return found.digest()

    def _make(self) -> ssl.SSLContext:
        tls = self._tls
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # a session that is taken up again would outlive the authorities that let it in
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.set_alpn_protocols(["http/1.1"])
        key = tls.key_file or tls.cert_file
        try:
            # an empty password: without one OpenSSL would ask at the terminal for that of a key
            context.load_cert_chain(str(tls.cert_file), key, password="")
        except (OSError, ValueError) as error:
            where = tls.cert_file if key == tls.cert_file else f"{tls.cert_file} with {key}"
            raise _certificate_error("cert_file", where, error) from None
        if tls.client_ca_file is not None:
            # not required in the handshake: probes come without one, and `Guard` asks the rest
            context.verify_mode = ssl.CERT_OPTIONAL
            try:
                context.load_verify_locations(cafile=tls.client_ca_file)
            except (OSError, ValueError) as error:
                raise _certificate_error("client_ca_file", tls.client_ca_file, error) from None
        return context


def _certificate_error(name: str, where: object, error: Exception) -> ConfigError:
    if isinstance(error, ssl.SSLError):
        why = "no PEM file of this kind, or the key is encrypted or another's"
        why += f" ({error.reason})" if error.reason else ""
    elif isinstance(error, OSError):
        why = error.strerror or str(error)
    else:
        why = "the key is encrypted"
    return ConfigError(f"http.tls.{name}: {where}: {why}")


log = logging.getLogger("ragmeter")

_REREAD_SECONDS = 10.0  # mounted secrets change without a signal; a look is a few small files

AccessScope = Literal["send", "scrape", "read"]
_SINGLE_LABEL_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?")


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
        local = name.endswith(".localhost") or _SINGLE_LABEL_NAME.fullmatch(name) is not None
        return local or name in {one.lower().rstrip(".") for one in names}
    return True


def find_exposure(http: HttpSettings, *, traces: bool) -> str | None:
    """What is missing for listening where `http` says; `traces`: on the port for traces, too."""
    for key, host in [("host", http.host), *([("otlp_host", http.otlp_address)] if traces else [])]:
        if is_loopback(host):
            continue
        what = f"http.{key} is {host}, which is reachable from other machines"
        if not (_has_any_token(http) or http.tls.client_ca_file or "open" in http.accept):
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


def _has_any_token(http: HttpSettings) -> bool:
    given = ("token", "send_token", "scrape_token")
    return any(getattr(http, key) or getattr(http, f"{key}_file") for key in given)


class AccessPolicy:
    """Tokens and certificate of a process's ports.

    `traces`: whether there is a port for traces. Raises `ConfigError`.
    """

    def __init__(self, settings: Settings, *, traces: bool = True) -> None:
        http = settings.http
        if missing := find_exposure(http, traces=traces):
            raise ConfigError(missing)
        self.http = http
        self.names = frozenset((*http.names, *_host_of(settings.alerts.page_url)))
        everything = BearerTokens("http.token", http.token, http.token_file)
        self._tokens: dict[AccessScope, tuple[BearerTokens, ...]] = {
            "read": (everything,),
            "send": (
                everything,
                BearerTokens("http.send_token", http.send_token, http.send_token_file),
            ),
            "scrape": (
                everything,
                BearerTokens("http.scrape_token", http.scrape_token, http.scrape_token_file),
            ),
        }
        self.certificate = ServerCertificate(http.tls) if http.tls.cert_file else None
        self.wants_certificate = http.tls.client_ca_file is not None
        self.refused: dict[str, Counter[str]] = {}
        """How often what was not let in, by the name of the port and the reason."""
        self._problems: frozenset[str] = frozenset()

    def requires_token(self, scope: AccessScope) -> bool:
        """Whether there are tokens that open it."""
        return any(self._tokens[scope])

    def accepts_token(self, scope: AccessScope, token: bytes) -> bool:
        """Every token is compared, so that the time does not say which one it is like."""
        return sum(tokens.match(token) for tokens in self._tokens[scope]) > 0

    def is_open_to_all(self, host: str) -> bool:
        """Whether what no token opens is open to all on that address."""
        return is_loopback(host) or "open" in self.http.accept

    def refusals(self, port: str) -> Counter[str]:
        return self.refused.setdefault(port, Counter())

    @contextlib.asynccontextmanager
    async def watch_files(self) -> AsyncIterator[None]:
        """Changes of the files are noticed."""

        async def watch() -> None:
            while True:
                await asyncio.sleep(_REREAD_SECONDS)
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
    def _reread_one(name: str, one: BearerTokens | ServerCertificate, problems: set[str]) -> None:
        try:
            if one.reread():
                log.warning("%s read again, in force from now on: %r", name, one)
        except ConfigError as error:
            problems.add(str(error))


def _host_of(url: str | None) -> Iterable[str]:
    host = urlsplit(url).hostname if url else None
    return (host,) if host else ()
