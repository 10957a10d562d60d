"""Secrets in the tree and in its history: `make secrets`.

gitleaks looks at every commit that any branch reaches, and at the files as they are. What it finds
and is none, .gitleaks.toml names with the reason.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.supply.tools import ROOT, Missing, fetch_gitleaks

__all__ = ["CONFIG", "copy_tree", "main", "scan"]

CONFIG = ROOT / ".gitleaks.toml"
SECONDS = 600


def scan(kind: str, where: Path, *more: str, report: Path | None = None) -> int:
    """gitleaks' exit status: 0 nothing, 1 found. `kind` is `git` or `dir`. Raises `Missing`."""
    command = [str(fetch_gitleaks()), kind, "--no-banner", "--redact", "--verbose"]
    command += ["--config", str(CONFIG), *more]
    if report is not None:
        command += ["--report-format", "json", "--report-path", str(report)]
    # by a relative path, as .gitleaks.toml names them
    return subprocess.run([*command, "."], timeout=SECONDS, cwd=where).returncode


def copy_tree(root: Path, target: Path) -> int:
    """What git keeps or would keep, as it is now; how many files."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True, timeout=60)
    names = {name for name in listed.stdout.decode().split("\0") if name}
    for name in names:
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, target / name)
    return len(names)


def main() -> int:
    try:
        with tempfile.TemporaryDirectory(prefix="ragmeter-tree-") as folder:
            number = copy_tree(ROOT, Path(folder))
            sys.stdout.write(f"secrets: {number} files of the tree\n")
            sys.stdout.flush()
            found = scan("dir", Path(folder))
        command = ["git", "rev-parse", "--is-shallow-repository"]
        shallow = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        if shallow.stdout.strip() == "true":
            sys.stdout.write("secrets: the clone is shallow: only a part of the history is seen\n")
        sys.stdout.write("secrets: the history\n")
        sys.stdout.flush()
        found |= scan("git", ROOT, "--log-opts=--all")
    except (Missing, subprocess.SubprocessError) as error:
        sys.stdout.write(f"secrets: {error}\n")
        return 2
    return found


if __name__ == "__main__":
    sys.exit(main())
