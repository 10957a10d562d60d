"""Data files of the packages, and files that appear under their name only when complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

_MAX_KEY_CHARS = 60  # of a key in an error


def load_yaml(package: str, name: str) -> Any:
    """Load a data file of a package."""
    return parse_yaml(resources.files(package).joinpath(name).read_bytes())


def load_of_parts(name: str) -> list[Any]:
    """Load the data file `name` of every part whose folder has it, in the order of their names."""
    folders = sorted(resources.files("ragmeter.parts").iterdir(), key=lambda folder: folder.name)
    files = [folder.joinpath(name) for folder in folders if folder.is_dir()]
    return [parse_yaml(file.read_bytes()) for file in files if file.is_file()]


def parse_yaml(text: bytes | str) -> Any:
    """Parse YAML of our own, with libyaml (ten times as fast) where it is there."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that stands twice, of which YAML's parser would take the last."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Check a map before keys are merged into it, which its own keys may replace."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    name = key.value if len(key.value) <= _MAX_KEY_CHARS else "a key"
                    problem = f"{name} stands twice in one map"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        super().flatten_mapping(node)


def read_yaml(path: Path) -> Any:
    """Read a YAML file of a user's.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not UTF-8, or holds an impossible date or number.
        yaml.YAMLError: It is no YAML, or a key stands twice in a map.
        RecursionError: It is nested too deeply.
    """
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise ValueError("the file is no text in UTF-8") from None
    return yaml.load(text, _UniqueKeyLoader)


@contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """Yield a temporary file's path to write to, renamed to `path` if the block succeeds.

    With `sync` the content survives a power cut.

    Pipes and devices are written to directly, and a link stays a link.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        yield path
        return
    # with the process id, as two processes may write the same file
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        if sync:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.filename == str(temporary):  # people know the other name
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a whole file by `replacing`."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)
