"""The real process: tokens and certificates that change while it runs, and a start that refuses."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from ragmeter.cli.main import app
from typer.testing import CliRunner

from tests.crash import RAGMETER, settings_file, start
from tests.kafka_security import make_certificates
from tests.ports import free_port
from tests.real import require
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOKENS = {name: f"{name}-for-{name}-only" for name in ("token", "send", "scrape")}
SECONDS = 300  # a busy machine takes tens of seconds to start a process


class Agent:
    def __init__(self, folder: Path, http: dict[str, Any]) -> None:
        self.folder = folder
        self.otlp, self.page = free_port(), free_port()
        self.config = settings_file(folder)
        tree = json.loads(self.config.read_text())
        tree["http"] = {"otlp_port": self.otlp, "metrics_port": self.page, **http}
        self.config.write_text(json.dumps(tree))
        self.scheme = "https" if "tls" in http else "http"
        self.process = start(folder, "run", "-c", self.config)

    @property
    def talk(self) -> str:
        return (self.folder / "talk.txt").read_text()

    def get(self, path: str, token: str = "", verify: Any = True) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{self.scheme}://127.0.0.1:{self.page}{path}"
        return httpx.get(url, headers=headers, verify=verify, trust_env=False, timeout=PATIENCE)

    def post(self, token: str = "", verify: Any = True) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        trace = {"trace_id": "t", "service": "bot", "timestamp": time.time()}
        return httpx.post(
            f"{self.scheme}://127.0.0.1:{self.otlp}/v1/rag/traces",
            json=trace,
            headers=headers,
            verify=verify,
            trust_env=False,
            timeout=PATIENCE,
        ).status_code

    def until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if what():
                    return
            except httpx.HTTPError:
                pass
            assert self.process.poll() is None, self.talk
            assert time.monotonic() < deadline, self.talk
            time.sleep(0.1)

    def hang_up(self) -> None:
        self.process.send_signal(signal.SIGHUP)


@contextmanager
def agent(folder: Path, **http: Any) -> Iterator[Agent]:
    found = Agent(folder, http)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()


def test_tokens_of_files_are_asked_for_and_rotated(tmp_path: Path) -> None:
    files = {}
    for name, token in TOKENS.items():
        key = "token_file" if name == "token" else f"{name}_token_file"
        files[key] = str(tmp_path / name)
        (tmp_path / name).write_text(f"{token}\n")
    with agent(tmp_path, **files) as found:
        found.until(lambda: found.get("/healthz").status_code == 200)
        assert [found.get(path).status_code for path in ("/", "/metrics", "/x")] == [401] * 3
        assert found.get("/", TOKENS["token"]).status_code == 200
        assert found.get("/", TOKENS["scrape"]).status_code == 401
        assert found.get("/metrics", TOKENS["scrape"]).status_code == 200
        assert (found.post(), found.post(TOKENS["scrape"])) == (401, 401)
        assert found.post(TOKENS["send"]) == 200
        new = "another-for-all-of-it"
        (tmp_path / "token").write_text(f"{new}\n{TOKENS['token']}\n")
        found.hang_up()
        found.until(lambda: found.get("/", new).status_code == 200)
        assert found.get("/", TOKENS["token"]).status_code == 200, "both, while it is rotated"
        (tmp_path / "token").write_text(new)  # and without a signal
        found.until(lambda: found.get("/", TOKENS["token"]).status_code == 401)
        text = found.get("/metrics", new).text
        assert 'ragmeter_http_refused_total{port="metrics",reason="wrong_token"}' in text
        # our own commands take the token from the same settings
        done = subprocess.run(
            [*RAGMETER, "baseline", "show", "--config", found.config],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=ROOT,
        )
        assert "401" not in done.stderr
        # what was sent may be watched by now
        assert "nothing is watched yet" in done.stderr or "has no usual yet" in done.stdout
        arguments = Path(f"/proc/{found.process.pid}/cmdline").read_bytes()
        for token in (*TOKENS.values(), new):
            assert token not in found.talk
            assert token.encode() not in arguments


@pytest.mark.real
def test_certificates_are_rotated_and_clients_need_theirs(tmp_path: Path) -> None:
    require("openssl")
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        make_certificates(folder)
    for name in ("server.pem", "server.key", "ca.pem"):
        shutil.copy(old / name, tmp_path / name)
    tls = {
        "cert_file": str(tmp_path / "server.pem"),
        "key_file": str(tmp_path / "server.key"),
        "client_ca_file": str(tmp_path / "ca.pem"),
    }

    def trust(folder: Path, client: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        if client:
            context.load_cert_chain(folder / f"{client}.pem", folder / f"{client}.key")
        return context

    with agent(tmp_path, tls=tls) as found:
        found.until(lambda: found.get("/healthz", verify=trust(old)).status_code == 200)
        assert found.get("/metrics", verify=trust(old)).status_code == 403
        assert found.post(verify=trust(old)) == 403
        assert found.get("/metrics", verify=trust(old, "client")).status_code == 200
        assert found.post(verify=trust(old, "client")) == 200
        with pytest.raises(httpx.HTTPError):
            found.get("/metrics", verify=trust(old, "stranger")).raise_for_status()
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{found.page}/healthz", trust_env=False, timeout=PATIENCE)
        checked = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{found.page}", "-tls1_1"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
            check=False,
        )
        assert checked.returncode != 0, "TLS 1.1 is refused"

        shutil.copy(new / "server.key", tmp_path / "server.key")  # half of a pair
        found.hang_up()
        found.until(lambda: "what was there before holds" in " ".join(found.talk.split()))
        assert found.get("/healthz", verify=trust(old)).status_code == 200
        for name in ("server.pem", "ca.pem"):
            shutil.copy(new / name, tmp_path / name)
        found.hang_up()
        found.until(lambda: found.get("/healthz", verify=trust(new)).status_code == 200)
        assert found.get("/metrics", verify=trust(new, "client")).status_code == 200
        context = trust(new)
        context.load_cert_chain(old / "client.pem", old / "client.key")
        with pytest.raises(httpx.HTTPError):  # of the authority that is trusted no more
            found.get("/metrics", verify=context).raise_for_status()
        assert "Traceback" not in found.talk


@pytest.mark.parametrize(
    ("command", "variables", "words"),
    [
        ("run", {"HOST": "0.0.0.0"}, "http.token_file"),
        ("run", {"HOST": "0.0.0.0", "ACCEPT": "open"}, "http.tls.cert_file"),
        ("worker", {"HOST": "0.0.0.0"}, "http.token_file"),
        ("config check", {"HOST": "0.0.0.0"}, "http.token_file"),
        ("run", {"TOKEN_FILE": "/nowhere/token"}, "http.token_file: /nowhere/token"),
        ("run", {"TLS__CERT_FILE": "/nowhere/tls.crt"}, "http.tls.cert_file: /nowhere/tls.crt"),
        ("run", {"TOKEN": "hush-hush"}, "16 or more"),
    ],
)
def test_a_port_that_anybody_could_use_is_not_opened(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    variables: dict[str, str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {f"RAGMETER_HTTP__{name}": value for name, value in variables.items()}
    done = CliRunner().invoke(app, command.split(), env=environ)
    assert done.exit_code == 2
    reported = " ".join(done.stderr.split())
    assert words in reported
    assert "hush" not in reported
    assert list(tmp_path.iterdir()) == [], "nothing was begun"
