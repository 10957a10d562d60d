"""What the secure listeners of a test's Kafka need: one user, and certificates made by OpenSSL."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.admin import UserScramCredentialUpsertion

from tests.real import require
from tests.waiting import PATIENCE

__all__ = [
    "LIMITED",
    "PASSWORD",
    "USER",
    "add_user",
    "make_certificates",
    "make_key_pair",
    "make_token",
    "security_properties",
]

USER, PASSWORD = "ragmeter", "correct-horse"
LIMITED = "limited"  # a user by PLAIN with PASSWORD, who may do what lists of rights say

JAAS = "org.apache.kafka.common.security"


def make_token(seconds: float = 600.0) -> str:
    """A token that the listeners take by OAUTHBEARER: of USER, without a signature."""
    now = time.time()
    parts: list[dict[str, object]] = [
        {"alg": "none"},
        {"sub": USER, "iat": now - 60, "exp": now + seconds},
    ]
    coded = (base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts)
    return ".".join(part.decode().rstrip("=") for part in coded) + "."


def make_certificates(folder: Path) -> None:
    """ca.pem; server.pem (key and chain in one file, as Kafka reads it); client.pem, client.key;
    and stranger.pem, stranger.key, signed by an authority that nobody trusts."""
    for authority in ("ca", "other"):
        # Without the key usage, Python 3.13 and newer refuse an authority.
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        _openssl(folder, "req", "-x509", *_new_key(authority), "-out", f"{authority}.pem", *usage)
    for name, authority in (("server", "ca"), ("client", "ca"), ("stranger", "other")):
        _openssl(folder, "req", "-new", *_new_key(name), "-out", f"{name}.csr")
        # The names that a client checks are those of the extension, not the subject's.
        (folder / f"{name}.ext").write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost\n"
            "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        )
        request = ["-in", f"{name}.csr", "-days", "2", "-CAcreateserial"]
        signer = ["-CA", f"{authority}.pem", "-CAkey", f"{authority}.key"]
        files = ["-extfile", f"{name}.ext", "-out", f"{name}.pem"]
        _openssl(folder, "x509", "-req", *request, *signer, *files)
    key = (folder / "server.key").read_text()
    (folder / "server.pem").write_text(key + (folder / "server.pem").read_text())


def make_key_pair(folder: Path, name: str) -> None:
    """A certificate that has signed itself, NAME.pem, and its key, NAME.key."""
    _openssl(folder, "req", "-x509", *_new_key(name), "-out", f"{name}.pem")


def add_user(bootstrap: str) -> None:
    """Let USER in by SCRAM: unlike the passwords of PLAIN, these are kept by Kafka itself."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        added = UserScramCredentialUpsertion(USER, mechanism, PASSWORD)
        assert admin.alter_user_scram_credentials([added]) == {USER: None}
    admin.close()


def security_properties(folder: Path) -> str:
    """Lines of server.properties for the listeners SASL, SSL and SASL_SSL, and for rights."""
    lines = []
    for listener in ("sasl", "sasl_ssl"):
        prefix = f"listener.name.{listener}."
        lines += [
            f"{prefix}sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            # it accepts tokens without a signature: see `make_token`
            f"{prefix}oauthbearer.sasl.jaas.config={JAAS}.oauthbearer.OAuthBearerLoginModule "
            f'required unsecuredLoginStringClaim_sub="{USER}";',
            f"{prefix}plain.sasl.jaas.config={JAAS}.plain.PlainLoginModule required "
            f'user_{USER}="{PASSWORD}" user_{LIMITED}="{PASSWORD}";',
        ]
        lines += [
            f"{prefix}{scram}.sasl.jaas.config={JAAS}.scram.ScramLoginModule required;"
            for scram in ("scram-sha-256", "scram-sha-512")
        ]
    lines += [
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={folder / 'server.pem'}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={folder / 'ca.pem'}",
        "listener.name.ssl.ssl.client.auth=required",
        # rights are checked of LIMITED alone
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"super.users=User:ANONYMOUS;User:{USER};User:CN=client",
    ]
    return "\n".join(lines) + "\n"


def _new_key(name: str) -> tuple[str, ...]:
    # A curve: quicker to make than RSA. Two days: longer than any test.
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    return (*curve, "-keyout", f"{name}.key", "-subj", f"/CN={name}", "-days", "2")


def _openssl(folder: Path, *arguments: str) -> None:
    command = [require("openssl"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
