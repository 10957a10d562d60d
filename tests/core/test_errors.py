"""Every exception says what the caller can do about it, and commands end as that says."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest
import ragmeter
import ragmeter_exporters
import typer
from ragmeter.cli.options import exit_on_error
from ragmeter.config.loader import ConfigError
from ragmeter.core import errors
from ragmeter.core.errors import (
    DataError,
    RagmeterError,
    StateError,
    Unavailable,
    UnusableResource,
    UsageError,
)

MIDDLES = (UsageError, Unavailable, DataError)


def product_exceptions() -> Iterator[type[BaseException]]:
    for package in (ragmeter, ragmeter_exporters):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    yield from sorted(
        (
            kind
            for kind in descendants(BaseException)
            if kind.__module__.split(".")[0] in ("ragmeter", "ragmeter_exporters")
        ),
        key=lambda kind: f"{kind.__module__}.{kind.__name__}",
    )


def descendants(kind: type[BaseException]) -> set[type[BaseException]]:
    found = set(type.__subclasses__(kind))
    return found.union(*(descendants(child) for child in found))


def test_every_exception_stands_under_one_middle() -> None:
    kinds = [kind for kind in product_exceptions() if kind is not RagmeterError]
    assert len(kinds) > 40
    assert [
        f"{kind.__module__}.{kind.__name__}"
        for kind in kinds
        if sum(issubclass(kind, middle) for middle in MIDDLES) != 1
        or not issubclass(kind, RagmeterError)
    ] == []


def test_the_tree_is_drawn_with_what_each_branch_is_for() -> None:
    lines = (errors.__doc__ or "").splitlines()
    for kind in (*MIDDLES, UnusableResource):
        drawn = [line.split(maxsplit=2)[-1] for line in lines if f"─ {kind.__name__} " in line]
        assert len(drawn) == 1, kind
        assert len(drawn[0]) > 40, kind


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ConfigError("http.port: no number"), 2, "configuration: http.port: no number"),
        (UsageError("--rate: over 0 is needed"), 2, "--rate: over 0 is needed"),
        (StateError("state.sqlite: of another version"), 1, "state.sqlite: of another version"),
        (Unavailable("the agent is busy"), 1, "the agent is busy"),
        (DataError("line 3: no trace"), 1, "line 3: no trace"),
        (FileNotFoundError(2, "No such file", "a.jsonl"), 1, "a.jsonl: No such file"),
    ],
)
def test_the_exit_status_tells_a_mistake_in_the_input_from_the_rest(
    error: Exception, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, exit_on_error():
        raise error
    assert ended.value.exit_code == status
    assert capsys.readouterr().err.split(maxsplit=1)[1].strip() == line
