"""The certificate of a port: read again while connections go on, for certificates expire."""

from __future__ import annotations

import ssl
from hashlib import sha256
from pathlib import Path

from agent.config import ConfigError
from agent.settings.http import Tls

__all__ = ["Certificate"]


class Certificate:
    """`context` is for connections that begin now. Raises `ConfigError`."""

    def __init__(self, tls: Tls) -> None:
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
                raise _unsound(name, file, error) from None
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
            raise _unsound("cert_file", where, error) from None
        if tls.client_ca_file is not None:
            # not required in the handshake: probes come without one, and `Guard` asks the rest
            context.verify_mode = ssl.CERT_OPTIONAL
            try:
                context.load_verify_locations(cafile=tls.client_ca_file)
            except (OSError, ValueError) as error:
                raise _unsound("client_ca_file", tls.client_ca_file, error) from None
        return context


def _unsound(name: str, where: object, error: Exception) -> ConfigError:
    if isinstance(error, ssl.SSLError):
        why = "no PEM file of this kind, or the key is encrypted or another's"
        why += f" ({error.reason})" if error.reason else ""
    elif isinstance(error, OSError):
        why = error.strerror or str(error)
    else:
        why = "the key is encrypted"
    return ConfigError(f"http.tls.{name}: {where}: {why}")
