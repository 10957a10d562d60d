"""The programs that look: pip-audit and cyclonedx-py, the group `security` of uv.lock, and
gitleaks, which Go compiles. `python -m deploy.supply.tools` fetches them into `.cache`."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = [
    "GITLEAKS",
    "GITLEAKS_VERSION",
    "LOCK",
    "ROOT",
    "STAMP",
    "Missing",
    "exported",
    "fetch_gitleaks",
    "fetch_python",
    "install_group",
]

ROOT = Path(__file__).parent.parent.parent
CACHE = ROOT / ".cache"
UV = str(Path(sys.executable).with_name("uv"))
GITLEAKS_VERSION = "v8.30.1"
GITLEAKS = CACHE / f"gitleaks-{GITLEAKS_VERSION}" / "gitleaks"
LOCK = ROOT / "uv.lock"
TOOLS = CACHE / "security-tools"
STAMP = TOOLS / "uv.lock"  # a copy, so that a half-made or an old environment is known


class Missing(Exception):
    """A program that is needed and cannot be had."""


def fetch_python() -> Path:
    """The folder of the locked programs. Raises `Missing`."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "security-tools.lock").open("w") as turn:  # CI asks for them twice at once
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (STAMP.is_file() and STAMP.read_bytes() == LOCK.read_bytes()):
            install_group("security", TOOLS)
            shutil.copyfile(LOCK, STAMP)
    return TOOLS / "bin"


def install_group(group: str, folder: Path) -> None:
    """Make an environment of what the lock has for a dependency group. Raises `Missing`."""
    # relocatable: a copied checkout brings its .cache
    make = (UV, "venv", "--quiet", "--clear", "--relocatable", "--python", sys.executable)
    _run(*make, str(folder))
    command = (UV, "sync", "--quiet", "--locked", "--project", str(ROOT), "--only-group", group)
    _run(*command, UV_PROJECT_ENVIRONMENT=str(folder))


def exported(*options: str) -> str:
    """A part of the lock as a list of requirements with hashes, without the project itself.

    Raises subprocess.CalledProcessError where the lock is not that of pyproject.toml.
    """
    done = subprocess.run(
        [
            UV,
            "export",
            "--quiet",
            "--locked",
            "--project",
            str(ROOT),
            "--no-emit-project",
            "--no-header",
            "--no-annotate",
            *options,
        ],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return done.stdout


def fetch_gitleaks() -> Path:
    """The program. Raises `Missing`."""
    if not GITLEAKS.is_file():
        CACHE.mkdir(exist_ok=True)
        # Renamed when it is whole: an interrupted install must not leave half a program.
        partial = GITLEAKS.parent.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        # the name that the module gives itself; its repository has moved
        module = f"github.com/zricethezav/gitleaks/v8@{GITLEAKS_VERSION}"
        # an idle priority: it keeps every core busy for a minute or more
        build = ("go", "install", "-trimpath", "-ldflags", "-s -w", module)
        _run("nice", "-n", "19", *build, GOBIN=str(partial))
        shutil.rmtree(GITLEAKS.parent, ignore_errors=True)
        partial.rename(GITLEAKS.parent)
    return GITLEAKS


def _run(*command: str, **environ: str) -> None:
    try:
        subprocess.run(command, env=os.environ | environ, check=True, cwd=CACHE)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"{' '.join(command[:4])} ...: {error}") from None


if __name__ == "__main__":
    sys.stdout.write(f"{fetch_python()}\n{fetch_gitleaks()}\n")
