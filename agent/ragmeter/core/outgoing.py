"""How requests leave the machine: the proxies and the certificate authorities of the environment.

The libraries read it each in its own way: httpx knows no ranges of addresses in NO_PROXY and no
REQUESTS_CA_BUNDLE, `requests` no SSL_CERT_FILE. Here it is read once, for all of them.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import os
import re
import ssl
import urllib.request
from functools import cache
from urllib.parse import SplitResult, urlsplit

import httpx

from ragmeter.core.errors import UnusableResource

_PORTS = {"http": 80, "https": 443}
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def find_proxy(url: str) -> str | None:
    """Return the URL of the proxy for a URL by HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.

    NO_PROXY is read as curl reads it, blanks and commas apart: `*`; a host, which stands for all
    below it, with or without a dot in front; an address; a range of addresses (`10.0.0.0/8`,
    `fd00::/8`). As for Go each of them may have a port, and `*.` may stand before a host. As for
    Java `|` stands between them, and `*` for any characters: `192.168.*`. No name is looked up for
    a range.

    Raises:
        UnusableResource: A proxy is named that cannot be one; the text shows nothing of it, as it
            may hold a password.
    """
    proxies = urllib.request.getproxies()
    parts = urlsplit(url)
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or not parts.hostname:
        return None
    exceptions = re.split(r"[\s,;|]+", proxies.get("no", ""))
    if any(entry and _is_excepted(parts, entry.lower()) for entry in exceptions):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    name = f"{parts.scheme}_proxy" if proxies.get(parts.scheme) else "all_proxy"
    if not _is_proxy(proxy):
        raise UnusableResource(
            f"{name.upper()}: what it holds is no proxy: http://host:port is needed"
        )
    return proxy


def _is_proxy(proxy: str) -> bool:
    try:
        parts = urlsplit(proxy)
        return parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port out of range, a broken address
        return False


def _is_excepted(url: SplitResult, entry: str) -> bool:
    host = (url.hostname or "").rstrip(".")
    address = _read_address(host)
    if entry == "*":
        return True
    if "/" in entry:
        try:
            network = ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
        return address is not None and address in network
    name, port = _split_port(entry)
    if port is not None and port != (url.port or _PORTS.get(url.scheme)):
        return False
    if "*" in name[1:]:
        return fnmatch.fnmatchcase(host, name)
    if address is not None:
        return address == _read_address(name)
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _split_port(entry: str) -> tuple[str, int | None]:
    """Take a port off; an IPv6 address has brackets where a port follows."""
    found = re.fullmatch(r"\[([^]]*)\](?::(\d{1,5}))?|([^:]*):(\d{1,5})", entry)
    if found is None:
        return entry, None
    port = found[2] or found[4]
    return found[1] or found[3] or "", None if port is None else int(port)


def _read_address(host: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])  # without the zone of IPv6
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def find_authorities() -> str | None:
    """Return the file or folder of authorities by SSL_CERT_FILE, else REQUESTS_CA_BUNDLE."""
    return os.environ.get("SSL_CERT_FILE") or os.environ.get("REQUESTS_CA_BUNDLE") or None


def make_tls_context() -> ssl.SSLContext:
    """Return the context of clients, which trusts the environment's authorities.

    Without them it trusts the system's and those that come with httpx.

    Raises:
        UnusableResource: The authorities cannot be read.
    """
    return _load_context(find_authorities())


@cache
def _load_context(authorities: str | None) -> ssl.SSLContext:
    if authorities is None:
        context = httpx.create_ssl_context(trust_env=False)
        context.load_default_certs()
        return context
    try:
        if os.path.isdir(authorities):
            return ssl.create_default_context(capath=authorities)
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise UnusableResource(
            f"{authorities}: certificate authorities (SSL_CERT_FILE or REQUESTS_CA_BUNDLE)"
            f" cannot be read: {error.strerror or error}"
        ) from None


class OutgoingTransport(httpx.AsyncBaseTransport):
    """Sends each request through the proxy that the environment names for its URL, if any.

    Raises:
        UnusableResource: The authorities of the environment cannot be read.
    """

    def __init__(self, limits: httpx.Limits | None = None) -> None:
        self._limits = limits or httpx.Limits(max_connections=100, max_keepalive_connections=20)
        if find_authorities() is not None:  # a mistake in them is told at once
            make_tls_context()
        self._transports: dict[str | None, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        try:
            proxy = find_proxy(str(request.url))
        except UnusableResource as error:
            raise httpx.ProxyError(str(error), request=request) from None
        transport = self._transports.get(proxy)
        if transport is None:
            transport = httpx.AsyncHTTPTransport(
                verify=make_tls_context(),  # only now: the system's take 50 ms to load
                proxy=proxy,
                limits=self._limits,
                trust_env=False,
            )
            self._transports[proxy] = transport
        return await transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            await transport.aclose()
