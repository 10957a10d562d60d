"""Compile the text kernel, `ragmeter.metrics.kernel`, when the package is built or installed.

A C++ compiler is taken from the machine: the one that CXX names, else g++ or clang++. Where there
is none, Zig's comes from a wheel (`ziglang`), which an isolated build installs by itself. The
compiler needs `Python.h`, which Debian keeps in `python3-dev`.

`python hatch_build.py` prints what to install before a build that is not isolated, if anything.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "ragmeter.metrics.kernel"
ZIG = "ziglang>=0.13"
# Without contraction a sum of products is the same on every processor, as it is in Python.
FLAGS = ["-std=c++17", "-O2", "-g0", "-fPIC", "-shared", "-ffp-contract=off"]


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled module to a wheel, or to the source tree of an editable installation."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what an isolated build installs besides `build-system.requires`."""
        return [] if find_compiler() else [ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the module and name it to the builder.

        Args:
            version: "editable", or "standard" for a wheel.
            build_data: What the builder reads afterwards.
        """
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        target = Path("ragmeter", "metrics", f"kernel{suffix}")
        self._folder = tempfile.mkdtemp()
        compiler = find_compiler()
        if not compiler:
            self.app.display_info("no C++ compiler here: compiling with the one of ziglang's wheel")
            compiler = [sys.executable, "-m", "ziglang", "c++", "-mcpu=baseline"]
        try:
            built = compile_module(Path(self.root), Path(self._folder), compiler)
        except BaseException:
            self.finalize(version, build_data, "")
            raise
        if version == "editable":
            beside = Path(self.root, "agent", target)
            fresh = Path(f"{beside}.new")
            shutil.copy(built, fresh)
            fresh.replace(beside)  # in place, running processes would crash
        build_data["force_include"][str(built)] = str(target)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled aside."""
        shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)


def find_compiler() -> list[str]:
    """Return the command of a C++ compiler of this machine; nothing where there is none."""
    named = os.environ.get("CXX")
    if named:
        return shlex.split(named)
    return next(([name] for name in ("g++", "clang++") if shutil.which(name)), [])


def compile_module(root: Path, folder: Path, compiler: list[str], more: Sequence[str] = ()) -> Path:
    """Compile the module into a folder and return the file.

    Args:
        root: The project.
        folder: Where the file and what leads to it are written.
        compiler: Its command.
        more: Options that outweigh ours.
    """
    from Cython.Compiler.Main import compile
    from Cython.Compiler.Options import CompilationOptions

    metrics = root / "agent" / "ragmeter" / "metrics"
    source = folder / "kernel.cpp"
    options = CompilationOptions(  # type: ignore[no-untyped-call]
        cplus=True, output_file=str(source), language_level=3
    )
    done = compile(  # type: ignore[no-untyped-call]
        str(metrics / "kernel.pyx"),
        options,
        full_module_name=MODULE,
    )
    if done.num_errors:
        raise RuntimeError(f"Cython cannot read {MODULE}")
    paths = sysconfig.get_paths()
    headers = dict.fromkeys((paths["include"], paths["platinclude"]))
    if not any(Path(place, "Python.h").is_file() for place in headers):
        raise RuntimeError(f"Python.h is not in {paths['include']}: Debian has it in python3-dev")
    target = folder / "kernel.so"
    command = [*compiler, *FLAGS, *more, str(source), "-o", str(target)]
    command += [f"-I{place}" for place in (metrics, *headers)]
    command += shlex.split(os.environ.get("ARCHFLAGS", ""))  # the processors of a macOS wheel
    if sys.platform == "darwin":
        command += ["-undefined", "dynamic_lookup"]
    if sys.platform == "win32":
        library = f"python{sys.version_info.major}{sys.version_info.minor}"
        command += [f"-L{Path(sys.base_prefix, 'libs')}", f"-l{library}"]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        by = shlex.join(compiler)
        raise RuntimeError(f"{MODULE} was not compiled by {by}: {finished.stderr}")
    return target


if __name__ == "__main__":
    print("" if find_compiler() else ZIG)
