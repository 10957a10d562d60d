"""The Kafka clients are used by their public interface, and no worker ends by force."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import ROOT
from tests.tables import each_row

AGENT = ROOT / "agent/ragmeter"
FOLDERS = ("kafka", "app", "cli")
# Whose meaning the clients document; the connection says why a broker cannot be reached, which no
# other interface of the client does.
MODULES = {
    "aiokafka",
    "aiokafka.abc",
    "aiokafka.admin",
    "aiokafka.conn",
    "aiokafka.coordinator.assignors.range",
    "aiokafka.errors",
    "aiokafka.partitioner",
    "aiokafka.protocol.metadata",
    "faust",
    "faust.auth",
    "faust.exceptions",
    "faust.types",
}
BASES = {"AiokafkaTokenProvider", "ConsumerRebalanceListener"}  # interfaces to implement
OWN = {"self", "cls"}


def objections(text: str) -> Iterator[str]:
    """What a module does that it should not."""
    tree = ast.parse(text)
    clients: set[str] = set()
    own = {"_replace", "_asdict", "_make", "_fields"}  # of named tuples
    for node in ast.walk(tree):
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if module.split(".")[0] in ("aiokafka", "faust"):
            clients |= {alias.asname or alias.name for alias in node.names}  # type: ignore[attr-defined]
            if module not in MODULES:
                yield f"{module} is no public module"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            own.add(node.name)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own.add(node.attr)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            for base in sorted(bases & clients - BASES):
                yield f"{node.name} is a {base}, and sees what is private to it"
        if isinstance(node, ast.Attribute):
            name = node.attr
            ours = isinstance(node.value, ast.Name) and node.value.id in OWN
            if ast.unparse(node) in ("os._exit", "os.kill", "os.abort"):
                yield f"{ast.unparse(node)} ends the process"
            elif name[0] == "_" and not name.startswith("__") and not ours and name not in own:
                yield f"{ast.unparse(node)} is private"


MODULES_OF_OURS = [path for folder in FOLDERS for path in sorted((AGENT / folder).rglob("*.py"))]


@each_row("path", MODULES_OF_OURS, ids=lambda path: str(path.relative_to(AGENT)))
def test_no_module_uses_what_is_private_to_a_client(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "kafka" not in text or list(objections(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "from faust.transport.drivers.aiokafka import Consumer",
        "from aiokafka import AIOKafkaConsumer\nclass A(AIOKafkaConsumer): ...",
        "def f(consumer):\n    return consumer._coordinator",
        "import os\nos._exit(1)",
    ],
)
def test_what_is_private_is_seen(text: str) -> None:
    assert list(objections(text))
