"""What checks the files for others: a real Helm, the schemas of Kubernetes, hadolint, Grafana's
dashboard-linter; axe-core, which checks the pages; and uPlot, which draws charts for the docs.

`python -m tests.deploy.tools` fetches them into `.cache`, ahead of the tests, which are bound in
time: Go compiles the linter for minutes. With `--downloads` nothing is compiled, which takes
seconds, and the writer of bills of materials is fetched too. It needs Go and a module proxy, and a
package index.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import yaml

from deploy.supply.tools import Missing, fetch_python, install_group
from tests.real import unavailable

__all__ = [
    "CRDS",
    "ROOT",
    "axe",
    "fetch",
    "helm_program",
    "linter_program",
    "python_of_tools",
    "uplot",
]

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"
# No release has a tag, and Go's checksum database does not know this commit: its sum is kept here,
# and the sums of what it is built from are in it.
LINTER_MODULE = "github.com/grafana/dashboard-linter"
LINTER_VERSION = "v0.0.0-20241224134444-1765d94aec4a"
LINTER_SUM = "h1:wpyAYX8+Rqu0LIEE7zXBR/qjBH4t0yXvqlRGa1wD5rg="
LINTER = CACHE / f"dashboard-linter-{LINTER_VERSION[-12:]}" / "dashboard-linter"
UPLOT_VERSION = "1.6.32"
UPLOT_SHA256 = "4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d"
UPLOT = CACHE / f"uplot-{UPLOT_VERSION}"
AXE = CACHE / "axe-core-4.11.0"
AXE_SHA256 = "39bed7d72308f6d620789c169d699bfd7e8da80f65b545821a6b2215c3e83107"
LOCK = ROOT / "uv.lock"
TOOLS = CACHE / "deploy-tools"
STAMP = TOOLS / "uv.lock"  # a copy, so that a half-made or an old environment is known
HELM = TOOLS / "bin" / "helm"  # Helm's own program, in a wheel: compiling it takes ten minutes

# The definitions of the objects that are not Kubernetes' own, from their projects' Go modules.
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
KEDA = "github.com/kedacore/keda/v2@v2.21.0"
DEFINITIONS = {
    OPERATOR: [
        f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"
        for kind in ("servicemonitors", "podmonitors", "prometheusrules")
    ],
    KEDA: [
        f"config/crd/bases/keda.sh_{kind}.yaml"
        for kind in ("scaledobjects", "triggerauthentications")
    ],
}
CRDS = CACHE / "crds"
CRDS_STAMP = CRDS / "modules.json"


def _unavailable(what: str) -> NoReturn:
    unavailable(f"{what} is not there: `make deploy-tools` fetches it")


def helm_program() -> str:
    """Skips the test where there is none, and fails it where CI=true."""
    return str(HELM) if _tools_are_there() and HELM.is_file() else _unavailable("Helm")


def linter_program() -> str:
    """As `helm_program`."""
    return str(LINTER) if LINTER.is_file() else _unavailable("Grafana's dashboard-linter")


def uplot() -> Path:
    """The folder with its scripts; npm fetches it where it is not there. For images alone."""
    _fetch_package(UPLOT, UPLOT_SHA256)
    return UPLOT / "package" / "dist"


def axe() -> Path:
    """The script of axe-core, which finds what people with a screen reader stumble over."""
    script = AXE / "package" / "axe.min.js"
    return script if script.is_file() else _unavailable("axe-core")


def _fetch_package(folder: Path, sha256: str) -> None:
    """Unpack a package of npm into a folder of its name and version, unless it is there."""
    if folder.is_dir():
        return
    name, _, version = folder.name.rpartition("-")
    archive = CACHE / _run("npm", "pack", "--silent", f"{name}@{version}").strip()
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != sha256:
        raise ValueError(f"{folder.name} has the sum {found}, not {sha256}")
    shutil.unpack_archive(archive, folder, filter="data")
    archive.unlink()


def python_of_tools() -> Path:
    """The interpreter with the locked tools; its folder has their commands."""
    if not (_tools_are_there() and _definitions_are_there()):
        _unavailable("the environment of the group deploy of uv.lock")
    return TOOLS / "bin" / "python"


def _tools_are_there() -> bool:
    return STAMP.is_file() and STAMP.read_bytes() == LOCK.read_bytes()


def _definitions_are_there() -> bool:
    return CRDS_STAMP.is_file() and json.loads(CRDS_STAMP.read_text()) == DEFINITIONS


def fetch(*, compiled: bool = True) -> None:
    """Make what is missing: what is only downloaded first, then, if asked, what is compiled.

    Raises OSError or subprocess.CalledProcessError where a command is missing or fails.
    """
    CACHE.mkdir(exist_ok=True)
    if not _tools_are_there():
        _fetch_tools()
    if not _definitions_are_there():
        _fetch_definitions()
    _fetch_package(AXE, AXE_SHA256)
    if compiled and not LINTER.is_file():
        _fetch_linter()


def _run(*command: str, **environ: str) -> str:
    done = subprocess.run(
        command, env=os.environ | environ, stdout=subprocess.PIPE, check=True, cwd=CACHE, text=True
    )
    return done.stdout


def _fetch_linter() -> None:
    download = ("go", "mod", "download", "-json", f"{LINTER_MODULE}@{LINTER_VERSION}")
    module = json.loads(_run(*download, GONOSUMDB=LINTER_MODULE))
    if module["Sum"] != LINTER_SUM:
        raise ValueError(f"{LINTER_MODULE} has the sum {module['Sum']}, not {LINTER_SUM}")
    # Renamed when it is whole: an interrupted build must not leave half a program.
    partial = LINTER.parent.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    # in its own folder, so that its go.sum holds; that lies in the cache of modules, read-only
    # and at an idle priority: it keeps every core busy for minutes
    build = ("go", "-C", module["Dir"], "build", "-trimpath", "-ldflags", "-s -w")
    _run("nice", "-n", "19", *build, "-o", str(partial / LINTER.name), ".")
    shutil.rmtree(LINTER.parent, ignore_errors=True)
    partial.rename(LINTER.parent)


def _fetch_definitions() -> None:
    shutil.rmtree(CRDS, ignore_errors=True)
    CRDS.mkdir()
    for module, paths in DEFINITIONS.items():
        folder = Path(json.loads(_run("go", "mod", "download", "-json", module))["Dir"])
        for path in paths:
            definition = yaml.safe_load((folder / path).read_text(encoding="utf-8"))
            for version in definition["spec"]["versions"]:
                kind = definition["spec"]["names"]["kind"]
                name = f"{definition['spec']['group']}_{version['name']}_{kind}.json"
                (CRDS / name).write_text(json.dumps(version["schema"]["openAPIV3Schema"]))
    CRDS_STAMP.write_text(json.dumps(DEFINITIONS))


def _fetch_tools() -> None:
    install_group("deploy", TOOLS)
    shutil.copyfile(LOCK, STAMP)


if __name__ == "__main__":
    downloads = "--downloads" in sys.argv[1:]
    if downloads:
        with contextlib.suppress(Missing):
            fetch_python()  # by another target in CI, beside this one
    fetch(compiled=not downloads)
    sys.stdout.write(f"{TOOLS}\n{CRDS}\n{LINTER}\n")
