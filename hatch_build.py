"""Compile `agent/ragmeter/metrics/compiled.pyx` when the package is built or installed.

Without a C++ compiler the package is built all the same, of Python alone: the built-in scorers then
take 2.7 times as long and give the same numbers. `RAGMETER_COMPILE=required` makes that an error,
for those who build what others install; `RAGMETER_COMPILE=no` builds without trying.
An editable installation without the module loses the one of an earlier build.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "ragmeter.metrics.compiled"
# Without contraction a sum of products is the same on every processor, as it is in Python. What a
# debugger needs, which Python's own flags ask for, is nine tenths of the file.
FLAGS = ["-O2", "-g0", "-ffp-contract=off"]


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled module to a wheel, or to the source tree of an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the module and name it to the builder.

        Args:
            version: "editable", or "standard" for a wheel.
            build_data: What the builder reads afterwards.
        """
        wish = os.environ.get("RAGMETER_COMPILE", "")
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        target = Path("ragmeter", "metrics", f"compiled{suffix}")
        beside = Path(self.root, "agent", target) if version == "editable" else None
        if wish == "no":
            _remove(beside)
            return
        self._folder = tempfile.mkdtemp()
        try:
            built = compile_module(Path(self.root), Path(self._folder))
        except Exception as error:
            self.finalize(version, build_data, "")
            if wish == "required":
                raise
            _remove(beside)
            self.app.display_warning(
                f"{MODULE} was not compiled ({type(error).__name__}: {error}); "
                "the built-in scorers will take 2.7 times as long"
            )
            return
        if beside is not None:
            fresh = Path(f"{beside}.new")
            shutil.copy(built, fresh)
            fresh.replace(beside)  # in place, running processes would crash
        build_data["force_include"][str(built)] = str(target)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled aside."""
        shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)


def _remove(module: Path | None) -> None:
    """Remove a module of an older source, which would be imported still."""
    if module is not None:
        module.unlink(missing_ok=True)


def compile_module(root: Path, folder: Path) -> Path:
    """Compile the module into a folder and return the file."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    source = root / "agent" / "ragmeter" / "metrics" / "compiled.pyx"
    copy = folder / "compiled.pyx"  # nothing is written beside the source
    shutil.copy(source, copy)
    extension = Extension(MODULE, [str(copy)], language="c++", extra_compile_args=FLAGS)
    modules = cythonize(  # type: ignore[no-untyped-call]
        [extension], quiet=True, build_dir=str(folder), force=True
    )
    command = Distribution({"name": "ragmeter", "ext_modules": modules}).get_command_obj(
        "build_ext"
    )
    command.build_lib = command.build_temp = str(folder)
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath(MODULE))
