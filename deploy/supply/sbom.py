"""The bill of materials of what is shipped, in CycloneDX: `make sbom`.

One document a variant of the image, from the part of uv.lock that it is installed from.
cyclonedx-py validates each against the schema before it writes; the same lock gives the same bytes.
Components carry name, version, package URL and hashes; which of them needs which, a lock does not
say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from deploy.supply.tools import ROOT, Missing, exported, fetch_python

__all__ = ["OUT", "VARIANTS", "main", "requirements", "write"]

OUT = ROOT / "dist"
VARIANTS = {
    "ragmeter": ("model", "otel"),
    "ragmeter-kafka": ("model", "otel", "kafka"),
}
"""The extras of the project that each has."""
VERSION = "1.6"  # of CycloneDX: the newest that scanners commonly read
SECONDS = 120


def requirements(name: str) -> str:
    """What an image holds beside the project, as a list of requirements with hashes."""
    extras = [word for extra in VARIANTS[name] for word in ("--extra", extra)]
    return exported("--no-dev", *extras)


def write(name: str, folder: Path) -> Path:
    """Raises subprocess.CalledProcessError where it is not valid, `Missing` without the program."""
    lock = folder / f"{name}.txt"
    lock.write_text(requirements(name), encoding="utf-8")
    path = folder / f"{name}.cdx.json"
    command = [
        str(fetch_python() / "cyclonedx-py"),
        "requirements",
        str(lock),
        "--pyproject",
        str(ROOT / "pyproject.toml"),
        "--mc-type",
        "application",
        "--spec-version",
        VERSION,
        "--output-format",
        "JSON",
        "--output-reproducible",
        "--validate",
        "--output-file",
        str(path),
    ]
    # it warns that a lock does not say which component needs which
    quiet = os.environ | {"PYTHONWARNINGS": "ignore::UserWarning"}
    try:
        subprocess.run(command, check=True, timeout=SECONDS, cwd=ROOT, env=quiet)
    finally:
        lock.unlink()
    return path


def main() -> int:
    OUT.mkdir(exist_ok=True)
    for name in VARIANTS:
        try:
            path = write(name, OUT)
        except (Missing, subprocess.SubprocessError) as error:
            sys.stdout.write(f"sbom: {error}\n")
            return 1
        components = json.loads(path.read_text(encoding="utf-8"))["components"]
        shown = path.relative_to(ROOT)
        sys.stdout.write(f"sbom: {shown}: {len(components)} components\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
