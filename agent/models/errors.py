"""What can go wrong with a local model, in words a user can act on."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = ["EXTRA", "ModelError", "require"]

EXTRA = "pip install 'ragmeter[hhem]'"


class ModelError(Exception):
    """Why a model cannot be read, built or used; one line."""


def require(name: str) -> ModuleType:
    """A module of the extra `hhem`, imported where it is first needed. Raises `ModelError`."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ModelError(
            f"HHEM needs the package {name.partition('.')[0]}, which cannot be imported "
            f"({error}); {EXTRA} installs it"
        ) from None
