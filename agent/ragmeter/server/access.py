"""Access policy of the HTTP ports: bearer tokens, TLS certificate and exposure checks.

Three tokens, from wide to narrow: `token` opens everything, `send_token` sending traces,
`scrape_token` `/metrics`. Paths without a token are open on loopback, and elsewhere only with
`accept: open` or to clients with a certificate of `http.tls.client_ca_file`.
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
from collections.abc import AsyncIterator, Coroutine, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from ragmeter.config.inputs import HttpSettings, TlsSettings
from ragmeter.config.loader import ConfigError
from ragmeter.config.settings import Settings

log = logging.getLogger(__name__)

AccessScope = Literal["send", "scrape", "read"]

_MIN_TOKEN_CHARS = 16  # 64 bits in hexadecimal: too many to try over a network
_MAX_TOKENS = 16  # old and new during a rotation; each is compared for each request
_MAX_TOKEN_FILE_CHARS = 8192  # a longer file is another file
_TOKEN = re.compile(r"[\x21-\x7e]+")
_REREAD_SECONDS = (
    10.0  # mounted secrets change without a signal; reading a few small files is cheap
)
_SINGLE_LABEL_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?")


class BearerTokens:
    """The tokens of one setting, separated by whitespace; a file is read instead of the text.

    Bad tokens raise a `ConfigError` whose text shows none of them.
    """

    def __init__(self, key: str, text: SecretStr | None = None, file: Path | None = None) -> None:
        self._key = key
        self._file = file
        self._hashes: tuple[bytes, ...] = ()
        if file is not None:
            self._hashes = self._read(file)
        elif text is not None:
            self._hashes = _hash_tokens(text.get_secret_value(), key)

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def __repr__(self) -> str:
        return f"Tokens({self._key}, {len(self._hashes)})"

    def match(self, token: bytes) -> bool:
        """Return whether it is one of them, in a time that shows neither which nor how nearly."""
        digest = sha256(token).digest()
        return sum(hmac.compare_digest(one, digest) for one in self._hashes) > 0

    def reread(self) -> bool:
        """Read the file again and return whether the tokens changed.

        Raises:
            ConfigError: It cannot be used; the old tokens stay valid.
        """
        if self._file is None:
            return False
        before, self._hashes = self._hashes, self._read(self._file)
        return self._hashes != before

    def _read(self, file: Path) -> tuple[bytes, ...]:
        where = f"{self._key}_file: {file}"
        try:
            with file.open(encoding="utf-8-sig") as source:
                text = source.read(_MAX_TOKEN_FILE_CHARS + 1)
        except OSError as error:
            raise ConfigError(f"{where}: {error.strerror or 'cannot be read'}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{where}: it is not UTF-8 text") from None
        return _hash_tokens(text, where)


def _hash_tokens(text: str, where: str) -> tuple[bytes, ...]:
    tokens = text.split()
    if not tokens:
        raise ConfigError(f"{where}: there is no token in it")
    if len(text) > _MAX_TOKEN_FILE_CHARS or len(tokens) > _MAX_TOKENS:
        raise ConfigError(
            f"{where}: at most {_MAX_TOKENS} tokens in {_MAX_TOKEN_FILE_CHARS} characters"
        )
    for number, token in enumerate(tokens, 1):
        if len(token) < _MIN_TOKEN_CHARS or not _TOKEN.fullmatch(token):
            raise ConfigError(
                f"{where}: token {number} needs {_MIN_TOKEN_CHARS} or more characters of printable"
                " ASCII; `openssl rand -hex 32` makes a good one"
            )
    return tuple(sha256(token.encode("ascii")).digest() for token in tokens)


class ServerCertificate:
    """The certificate of both ports; unusable files raise `ConfigError`."""

    def __init__(self, tls: TlsSettings) -> None:
        self._tls = tls
        self._digest = self._hash_files()
        self.context = self._make()

    def __repr__(self) -> str:
        return f"Certificate({self._tls.cert_file})"

    def reread(self) -> bool:
        """Use the files anew if they changed; return whether they did.

        Raises:
            ConfigError: They do not fit together, perhaps in the middle of a replacement; the old
                certificate stays in use.
        """
        digest = self._hash_files()
        if digest == self._digest:
            return False
        self.context = self._make()
        self._digest = digest
        return True

    def _hash_files(self) -> bytes:
        whole = sha256()
        for name, file in self._tls:
            if file is not None:
                try:
                    whole.update(sha256(file.read_bytes()).digest())
                except OSError as error:
                    raise _certificate_error(name, file, error) from None
        return whole.digest()

    def _make(self) -> ssl.SSLContext:
        cert = self._tls.cert_file
        key = self._tls.key_file or self._tls.cert_file
        if cert is None:
            raise RuntimeError("without a certificate there is no TLS")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # a resumed session would outlive the authorities that admitted it
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        # h2 last: whoever has nothing else speaks gRPC, and is told over it what to do
        context.set_alpn_protocols(["http/1.1", "h2"])
        try:
            # an empty password: without one OpenSSL would ask for a key's password at the terminal
            context.load_cert_chain(cert, key, password="")
        except (OSError, ValueError) as error:
            where = cert if key == cert else f"{cert} with {key}"
            raise _certificate_error("cert_file", where, error) from None
        if authorities := self._tls.client_ca_file:
            # optional in the handshake, as probes have none; `RequestGuard` refuses the others
            context.verify_mode = ssl.CERT_OPTIONAL
            try:
                context.load_verify_locations(cafile=authorities)
            except (OSError, ValueError) as error:
                raise _certificate_error("client_ca_file", authorities, error) from None
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


class AccessPolicy:
    """Tokens and certificate of a process's ports, of which one may be for traces.

    An exposed address without protection, and bad tokens or certificates raise `ConfigError`.
    """

    def __init__(self, settings: Settings, *, traces: bool = True) -> None:
        http = settings.http
        if missing := _find_exposure(http, traces=traces):
            raise ConfigError(missing)
        page = settings.alerts.page_url
        page_host = urlsplit(page.get_secret_value()).hostname if page else None
        self.http = http
        self.names = frozenset((*http.names, *([page_host] if page_host else [])))
        token, send, scrape = (
            BearerTokens(f"http.{name}", getattr(http, name), getattr(http, f"{name}_file"))
            for name in ("token", "send_token", "scrape_token")
        )
        self._tokens: dict[AccessScope, tuple[BearerTokens, ...]] = {
            "read": (token,),
            "send": (token, send),
            "scrape": (token, scrape),
        }
        self.certificate = ServerCertificate(http.tls) if http.tls.cert_file else None
        self.wants_certificate = http.tls.client_ca_file is not None
        self.refused: dict[str, Counter[str]] = {}  # by the name of the port and the reason
        self._problems: frozenset[str] = frozenset()

    def requires_token(self, scope: AccessScope) -> bool:
        """Return whether there are tokens that open the scope."""
        return any(self._tokens[scope])

    def accepts_token(self, scope: AccessScope, token: bytes) -> bool:
        """Return whether the token opens the scope, in a time that does not show which it is."""
        return sum(tokens.match(token) for tokens in self._tokens[scope]) > 0

    def is_open_to_all(self, host: str) -> bool:
        """Return whether scopes without a token are open to everybody on that address."""
        return is_loopback(host) or "open" in self.http.accept

    def refusals(self, port: str) -> Counter[str]:
        """Return the counter of a port's refusals, by reason."""
        return self.refused.setdefault(port, Counter())

    @contextlib.asynccontextmanager
    async def watch_files(self) -> AsyncIterator[None]:
        """Reread the files regularly inside the block."""

        async def watch() -> None:
            while True:
                await asyncio.sleep(_REREAD_SECONDS)
                await asyncio.to_thread(self.reread)

        async with background_task(watch()):
            yield

    def reread(self) -> None:
        """Read tokens and certificate again; log a bad file once, and keep its old content."""
        problems: set[str] = set()
        holders: list[tuple[str, BearerTokens | ServerCertificate]] = [
            ("tokens", one) for one in {*self._tokens["send"], *self._tokens["scrape"]}
        ]
        if self.certificate is not None:
            holders.append(("certificate", self.certificate))
        for name, holder in holders:
            try:
                if holder.reread():
                    log.warning("%s read again, in force from now on: %r", name, holder)
            except ConfigError as error:
                problems.add(str(error))
        for problem in sorted(problems - self._problems):
            log.error("%s; what was there before holds", problem)
        self._problems = frozenset(problems)


@contextlib.asynccontextmanager
async def background_task(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Run a coroutine beside the block and cancel it at the block's end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def parse_authorization(header: str | None) -> bytes | None:
    """Return the token of an `Authorization` header, None if it has none.

    `Bearer TOKEN`, or the password of `Basic` with any user name, which browsers can ask for.
    """
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


def is_loopback(host: str) -> bool:
    """Return whether only this machine (or Pod) reaches a listener on that address."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False  # a name may resolve to anything tomorrow
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_own_name(host: str, names: Iterable[str]) -> bool:
    """Return whether no page of another site can have this `Host` header.

    True for an address, a single word (no public name is one), or one of `names`. Another name may
    have been pointed here (DNS rebinding), and the page's scripts would read the answers.
    """
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


def _find_exposure(http: HttpSettings, *, traces: bool) -> str | None:
    """Return what the settings lack to listen on their addresses."""
    given = any(
        getattr(http, key) or getattr(http, f"{key}_file")
        for key in ("token", "send_token", "scrape_token")
    )
    for key, host in [("host", http.host), *([("otlp_host", http.otlp_address)] if traces else [])]:
        if is_loopback(host):
            continue
        what = f"http.{key} is {host}, which is reachable from other machines"
        if not (given or http.tls.client_ca_file or "open" in http.accept):
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
