"""What looks for vulnerabilities, secrets and contents: the rules, and the real programs."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from deploy.supply import audit, leaks, sbom
from deploy.supply.audit import Accepted, batches, locked, loose, read_accepted, verdict
from deploy.supply.tools import GITLEAKS, LOCK, ROOT, STAMP
from tests.real import unavailable
from tests.tables import each_row

TODAY = date(2026, 11, 22)
BAD = {"id": "GHSA-1", "aliases": ["CVE-1"], "fix_versions": ["2.0"]}
REPORT = {
    "dependencies": [
        {"name": "a", "version": "1.0", "vulns": [BAD]},
        {"name": "b", "version": "1.0", "vulns": []},
        {"name": "c", "skip_reason": "not found"},
    ]
}
REASON = "the part that has it is never called here"


def tools() -> None:
    if not (STAMP.is_file() and STAMP.read_bytes() == LOCK.read_bytes()):
        unavailable("the environment of the group security is not there: `make sbom`")


def test_what_nobody_knows_of_is_no_pass() -> None:
    found = verdict(REPORT, [], TODAY)
    assert found.unknown == ["c"]
    assert found.vulnerable == ["a 1.0: GHSA-1 (mended in 2.0)"]
    assert found.sound == 1


@pytest.mark.parametrize("other", ["cannot be reached", {"dependencies": []}])
def test_what_a_service_knows_counts_where_it_does_not_know_all(
    other: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([REPORT, other])
    monkeypatch.setattr(audit, "_ask", lambda service: next(answers))
    assert audit.main(["--allow-offline"]) == audit.FOUND
    assert "vulnerable: a 1.0: GHSA-1" in capsys.readouterr().out


def test_ci_looks_at_the_lock_alone_where_nobody_knows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit, "_ask", lambda service: "cannot be reached")
    assert audit.main(["--allow-offline"]) == 0
    assert "so nothing is said about vulnerabilities" in capsys.readouterr().out
    assert audit.main([]) == audit.UNKNOWN


@pytest.mark.parametrize(
    ("package", "until", "field"),
    [
        ("a", date(2026, 12, 1), "borne"),
        ("a", date(2026, 11, 21), "expired"),
        ("b", date(2026, 12, 1), "vulnerable"),
    ],
)
def test_what_is_accepted_is_so_for_a_package_and_a_while(
    package: str, until: date, field: str
) -> None:
    found = verdict(REPORT, [Accepted("CVE-1", package, until, REASON)], TODAY)
    full = {name for name in ("borne", "expired", "vulnerable") if getattr(found, name)}
    assert full == {field}


def test_an_acceptance_needs_a_date_and_a_reason() -> None:
    assert read_accepted(audit.ACCEPTED.read_text()) == []
    line = "[{id: CVE-1, package: a, until: 2026-12-01, reason: %s}]"
    assert read_accepted(line % REASON)[0].until == date(2026, 12, 1)
    with pytest.raises(ValueError, match="reason"):
        read_accepted(line % "short")


def test_the_lock_holds_every_version_by_its_hash() -> None:
    assert len(locked()) > 100
    assert loose(locked()) == []


REGISTRY = {"registry": "https://index.example/simple"}
HASHED = [{"url": "https://files.example/b.whl", "hash": "sha256:0"}]


@each_row(
    "entry",
    [
        {"source": REGISTRY},
        {"source": REGISTRY, "wheels": [{"url": "https://files.example/a.whl"}]},
        {"source": REGISTRY, "wheels": HASHED, "sdist": {"url": "https://files.example/a.zip"}},
        {"source": {"url": "https://files.example/a.whl"}, "wheels": HASHED},
        {"source": {"editable": "../a"}},
        {"source": {"git": "https://git.example/a"}},
    ],
)
def test_a_loose_entry_is_found(entry: dict[str, Any]) -> None:
    sound = {"name": "b", "version": "1", "source": REGISTRY, "wheels": HASHED}
    assert len(loose([sound, {"name": "a", "version": "1", **entry}, sound])) == 1


def test_every_version_of_the_lock_is_asked_for_once() -> None:
    entries = [("a", "1"), ("a", "2"), ("b", "1"), ("a", "2"), ("b", "1")]
    packages = [{"name": name, "version": one, "source": REGISTRY} for name, one in entries]
    packages.append({"name": "ragmeter", "source": audit.OWN})
    assert batches(packages) == [["a==1", "b==1"], ["a==2"]]
    asked = {pin for batch in batches(locked()) for pin in batch}
    assert len(asked) > 100
    assert any(pin.startswith("aiohttp==") for pin in asked)


def asked_about(vulnerable: str, request: Request) -> Response:
    """What OSV would answer if it knew one vulnerability of one package."""
    answer: dict[str, Any] = {}
    if json.loads(request.get_data())["package"]["name"] == vulnerable:
        affected = {
            "package": {"name": vulnerable, "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}],
        }
        answer = {"vulns": [{"id": "GHSA-x", "summary": "bad", "affected": [affected]}]}
    return Response(json.dumps(answer), content_type="application/json")


@pytest.mark.real
@pytest.mark.slow
def test_the_real_audit_fails_for_what_a_service_knows(
    capsys: pytest.CaptureFixture[str], httpserver: HTTPServer
) -> None:
    tools()
    url = httpserver.url_for("/v1/query")
    httpserver.expect_request("/v1/query").respond_with_handler(partial(asked_about, "nobody"))
    assert audit.main(["--osv-url", url]) == 0, capsys.readouterr().out
    httpserver.clear()
    httpserver.expect_request("/v1/query").respond_with_handler(partial(asked_about, "aiohttp"))
    assert audit.main(["--osv-url", url]) == 1
    assert "vulnerable: aiohttp" in capsys.readouterr().out
    assert audit.main(["--osv-url", "http://127.0.0.1:9/v1/query"]) == 3
    assert "this is not a pass" in capsys.readouterr().out


def test_without_a_network_it_says_what_it_did_not_do() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deploy.supply.audit", "--offline"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0
    assert "OFFLINE: no service was asked" in done.stdout


@pytest.mark.real
def test_the_bill_names_what_the_lock_does(tmp_path: Path) -> None:
    tools()
    path = sbom.write("ragmeter", tmp_path)
    found = json.loads(path.read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", sbom.VERSION)
    assert found["metadata"]["component"]["name"] == "ragmeter"
    locked = {
        line.split("==")[0].split("[")[0]
        for line in sbom.requirements("ragmeter").splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    }
    assert {one["name"].lower() for one in found["components"]} == locked
    for one in found["components"]:
        assert one["purl"].startswith(f"pkg:pypi/{one['name'].lower()}@")
    again = tmp_path / "again"
    again.mkdir()
    assert path.read_bytes() == sbom.write("ragmeter", again).read_bytes()


@pytest.mark.real
def test_a_planted_secret_is_found(tmp_path: Path) -> None:
    if not GITLEAKS.is_file():
        unavailable("gitleaks is not there: `make secrets` compiles it")
    (tmp_path / "clean.py").write_text("token = settings.http.token\n")
    assert leaks.scan("dir", tmp_path) == 0
    key = "AKIA" + "QYLPMN5HFIQR7XYA"  # of the form of AWS; nobody's
    (tmp_path / "dirty.py").write_text(f'aws_access_key_id = "{key}"\n')
    report = tmp_path / "report.json"
    assert leaks.scan("dir", tmp_path, report=report) == 1
    assert key not in report.read_text(), "what is found is not shown"
    (tmp_path / "dirty.py").unlink()
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, timeout=300)
