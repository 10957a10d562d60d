"""Known vulnerabilities of everything in the lock: `make audit`.

pip-audit asks a vulnerability service about each pinned version. A service that cannot be reached,
or does not know a package, is no pass: exit 3 says that nothing is known. 0: none is known to be
vulnerable but for what accepted.yaml names; 1: some are, or an acceptance has run out.

`--osv-url URL` (or AUDIT_OSV_URL) asks a mirror of OSV; `--offline` looks at the lock alone, says
so, and is for places without a network; `--allow-offline`, for CI, asks, and does that only where
no service knows every package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from deploy.supply.tools import LOCK, ROOT, Missing, fetch_python

__all__ = ["Accepted", "Verdict", "batches", "locked", "loose", "main", "read_accepted", "verdict"]

ACCEPTED = Path(__file__).parent / "accepted.yaml"
SECONDS = 300  # some hundred packages, one question each
SERVICES = ("pypi", "osv")
FOUND, UNKNOWN = 1, 3
OWN = {"editable": "."}  # the project itself


@dataclass(frozen=True, slots=True)
class Accepted:
    """A vulnerability that is known and borne, until when, and why."""

    id: str
    package: str
    until: date
    reason: str


@dataclass(slots=True)
class Verdict:
    """What a report says. `unknown`: packages of which the service knows nothing."""

    vulnerable: list[str] = field(default_factory=list)
    borne: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    sound: int = 0


def read_accepted(text: str) -> list[Accepted]:
    """Raises TypeError where an entry has other keys, ValueError where one has no reason."""
    found = [Accepted(**one) for one in yaml.safe_load(text) or []]
    for one in found:
        if not isinstance(one.until, date) or len(one.reason) < 20:
            raise ValueError(f"{one.id}: a date and a reason are needed")
    return found


def verdict(report: dict[str, Any], accepted: Sequence[Accepted], today: date) -> Verdict:
    """Of pip-audit's report, as it writes it in JSON."""
    found = Verdict()
    for package in report["dependencies"]:
        name = f"{package['name']} {package.get('version', '')}".strip()
        if "skip_reason" in package:
            found.unknown.append(name)
            continue
        for one in package["vulns"]:
            ids = {one["id"], *one.get("aliases", [])}
            fixed = ", ".join(one.get("fix_versions", [])) or "no version"
            line = f"{name}: {one['id']} (mended in {fixed})"
            by = [a for a in accepted if a.id in ids and a.package == package["name"]]
            if not by:
                found.vulnerable.append(line)
            elif by[0].until < today:
                found.expired.append(f"{line}: accepted until {by[0].until}")
            else:
                found.borne.append(f"{line}: {by[0].reason}")
        found.sound += not package["vulns"]
    return found


def loose(packages: Iterable[dict[str, Any]]) -> list[str]:
    """What a lock leaves open: a file without a hash, a package that is from no index."""
    found = []
    for package in packages:
        name = f"{package['name']} {package.get('version', '')}".strip()
        if package["source"] == OWN:
            continue
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        if "registry" not in package["source"]:
            found.append(f"{name}: not from an index")
        elif not files or not all(file.get("hash", "").startswith("sha256:") for file in files):
            found.append(f"{name}: no hash")
    return found


def batches(packages: Iterable[dict[str, Any]]) -> list[list[str]]:
    """The versions in a lock, for every platform, in lists that name a package once: pip-audit
    takes no other."""
    versions: dict[str, list[str]] = {}
    for package in packages:
        if package["source"] != OWN:
            known = versions.setdefault(package["name"], [])
            if package["version"] not in known:
                known.append(package["version"])
    most = max(map(len, versions.values()), default=0)
    return [
        [f"{name}=={found[n]}" for name, found in sorted(versions.items()) if len(found) > n]
        for n in range(most)
    ]


def locked() -> list[dict[str, Any]]:
    """The packages of uv.lock."""
    packages: list[dict[str, Any]] = tomllib.loads(LOCK.read_text("utf-8"))["package"]
    return packages


def _ask(service: Sequence[str]) -> dict[str, Any] | str:
    """pip-audit's reports as one, or why there is none."""
    command = [str(fetch_python() / "pip-audit"), "--disable-pip", "--no-deps"]
    command += ["--format", "json", "--progress-spinner", "off", *service]
    packages: list[dict[str, Any]] = []
    for pins in batches(locked()):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(pins))
            file.flush()
            try:
                done = subprocess.run(
                    [*command, "--requirement", file.name],
                    capture_output=True,
                    text=True,
                    timeout=SECONDS,
                    cwd=ROOT,
                )
                packages += json.loads(done.stdout)["dependencies"]
            except subprocess.TimeoutExpired:
                return f"no answer within {SECONDS} s"
            except (ValueError, KeyError):
                return (done.stderr.strip().splitlines() or ["no report"])[-1][:300]
        if len(packages) and all("skip_reason" in one for one in packages):
            break  # the rest would be no better known
    return {"dependencies": packages}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--offline", action="store_true", help="look at the lock alone")
    parser.add_argument("--allow-offline", action="store_true", help="else look at the lock alone")
    parser.add_argument("--osv-url", default=os.environ.get("AUDIT_OSV_URL"))
    given = parser.parse_args(arguments)
    accepted = read_accepted(ACCEPTED.read_text(encoding="utf-8"))
    wrong = loose(locked())
    _say("not locked", wrong)
    old = [one.id for one in accepted if one.until < date.today()]
    if given.offline:
        return _lock_alone(wrong, old, "no service was asked")
    own = ["--vulnerability-service", "osv", "--osv-url", given.osv_url] if given.osv_url else None
    services = [own] if own else [["--vulnerability-service", name] for name in SERVICES]
    known_bad: list[str] = []  # by a service that does not know every package
    for service in services:
        try:
            report = _ask(service)
        except Missing as error:
            sys.stdout.write(f"audit: {error}\n")
            return UNKNOWN
        if isinstance(report, str):
            sys.stdout.write(f"audit: {' '.join(service[1:2])}: {report}\n")
            continue
        found = verdict(report, accepted, date.today())
        if found.unknown:
            number = f"{len(found.unknown)} of {len(report['dependencies'])}"
            sys.stdout.write(f"audit: {service[1]} knows nothing of {number} packages\n")
            _say("vulnerable", found.vulnerable + found.expired)
            known_bad += found.vulnerable + found.expired
            continue
        _say("borne (deploy/supply/accepted.yaml)", found.borne)
        _say("accepted for too long", found.expired)
        _say("vulnerable", found.vulnerable)
        sys.stdout.write(f"audit: {found.sound} packages without a known vulnerability\n")
        return FOUND if wrong or known_bad or found.vulnerable or found.expired else 0
    if given.allow_offline and not known_bad:
        return _lock_alone(wrong, old, "no service could be asked about every package")
    sys.stdout.write(
        "audit: NO vulnerability service could be asked about every package, so nothing is known:"
        " this is not a pass. With a mirror of OSV: AUDIT_OSV_URL=...; without a network:"
        " make audit OFFLINE=1\n"
    )
    return FOUND if wrong or known_bad else UNKNOWN


def _lock_alone(wrong: Sequence[str], old: Sequence[str], why: str) -> int:
    _say("accepted for too long", old)
    versions = sum(map(len, batches(locked())))
    sys.stdout.write(
        f"audit: the lock holds {versions} versions{'' if wrong else ', each by its hash'};"
        f" OFFLINE: {why}, so nothing is said about vulnerabilities\n"
    )
    return FOUND if wrong or old else 0


def _say(what: str, lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"audit: {what}: {line}\n")


if __name__ == "__main__":
    sys.exit(main())
