"""Known vulnerabilities of everything in the locks: `make audit`.

pip-audit asks a vulnerability service about each pinned version. A service that cannot be reached,
or does not know a package, is no pass: exit 3 says that nothing is known. 0: none is known to be
vulnerable but for what accepted.yaml names; 1: some are, or an acceptance has run out.

`--osv-url URL` (or AUDIT_OSV_URL) asks a mirror of OSV; `--offline` looks at the locks alone, says
so, and is for places without a network; `--allow-offline`, for CI, asks, and does that only where
no service knows every package.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from deploy.supply.tools import ROOT, Missing, fetch_python

__all__ = ["LOCKS", "Accepted", "Verdict", "batches", "loose", "main", "read_accepted", "verdict"]

LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
ACCEPTED = Path(__file__).parent / "accepted.yaml"
SECONDS = 300  # some hundred packages, one question each
SERVICES = ("pypi", "osv")
FOUND, UNKNOWN = 1, 3
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[\w,-]+\])?==([^\s;]+)", re.MULTILINE)


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


def loose(name: str, text: str) -> list[str]:
    """What a lock leaves open: an entry without a hash, another version than one, a link."""
    found = []
    for entry in re.split(r"\n(?=\S)", text.strip()):
        head = entry.partition("\n")[0]
        if head.startswith(("#", "--")):
            continue
        if not re.match(r"[A-Za-z0-9._-]+(\[[\w,-]+\])?==[^\s;]+", head):
            found.append(f"{name}: {head[:80]}: not one version")
        elif "--hash=sha256:" not in entry:
            found.append(f"{name}: {head[:80]}: no hash")
    return found


def batches(texts: Iterable[str]) -> list[list[str]]:
    """The versions in locks, for every platform, in lists that name a package once: pip-audit takes
    no other."""
    versions: dict[str, list[str]] = {}
    for text in texts:
        for name, version in PIN.findall(text):
            known = versions.setdefault(name.lower(), [])
            if version not in known:
                known.append(version)
    most = max(map(len, versions.values()), default=0)
    return [
        [f"{name}=={found[n]}" for name, found in sorted(versions.items()) if len(found) > n]
        for n in range(most)
    ]


def _ask(service: Sequence[str]) -> dict[str, Any] | str:
    """pip-audit's reports as one, or why there is none."""
    command = [str(fetch_python() / "pip-audit"), "--disable-pip", "--no-deps"]
    command += ["--format", "json", "--progress-spinner", "off", *service]
    packages: list[dict[str, Any]] = []
    for pins in batches(lock.read_text("utf-8") for lock in LOCKS):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(pins))
            file.flush()
            try:
                done = subprocess.run(
                    [*command, "--requirement", file.name],
                    capture_output=True, text=True, timeout=SECONDS, cwd=ROOT,
                )  # fmt: skip
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
    parser.add_argument("--offline", action="store_true", help="look at the locks alone")
    parser.add_argument("--allow-offline", action="store_true", help="else look at the locks alone")
    parser.add_argument("--osv-url", default=os.environ.get("AUDIT_OSV_URL"))
    given = parser.parse_args(arguments)
    accepted = read_accepted(ACCEPTED.read_text(encoding="utf-8"))
    wrong = [line for lock in LOCKS for line in loose(lock.name, lock.read_text("utf-8"))]
    _say("not locked", wrong)
    old = [one.id for one in accepted if one.until < date.today()]
    if given.offline:
        return _locks_alone(wrong, old, "no service was asked")
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
        return _locks_alone(wrong, old, "no service could be asked about every package")
    sys.stdout.write(
        "audit: NO vulnerability service could be asked about every package, so nothing is known:"
        " this is not a pass. With a mirror of OSV: AUDIT_OSV_URL=...; without a network:"
        " make audit OFFLINE=1\n"
    )
    return FOUND if wrong or known_bad else UNKNOWN


def _locks_alone(wrong: Sequence[str], old: Sequence[str], why: str) -> int:
    _say("accepted for too long", old)
    sys.stdout.write(
        f"audit: {len(LOCKS)} locks hold every version by its hash; OFFLINE: {why}, so nothing is"
        " said about vulnerabilities\n"
    )
    return FOUND if wrong or old else 0


def _say(what: str, lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"audit: {what}: {line}\n")


if __name__ == "__main__":
    sys.exit(main())
