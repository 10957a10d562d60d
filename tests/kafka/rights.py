"""The rights that docs/kafka.md names, granted to a user of a secured broker."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)

from tests.kafka.place import Place
from tests.kafka_security import LIMITED, PASSWORD
from tests.kafka_server import KafkaServer
from tests.sources import ROOT

__all__ = ["Right", "documented_rights", "grant", "limited", "rights_of_commands"]

COMMAND = re.compile(r"^\$ kafka-acls\.sh ((?:.*\\\n)*.*)$", re.MULTILINE)
ROW = re.compile(r"^\| (`(?:kafka|replay) [^|]*) \| (`[^|]* of [^|]*) \|$", re.MULTILINE)
CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


class Right(NamedTuple):
    kind: str
    prefix: str
    operation: str


def documented_rights() -> Iterator[Right]:
    """Yield the rights that the commands of docs/kafka.md grant."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--resource-pattern-type", required=True, choices=["prefixed"])
    for name in ("--operation", "--topic", "--group", "--transactional-id"):
        parser.add_argument(name, action="append", default=[])
    text = (ROOT / "docs/kafka.md").read_text("utf-8")
    for command in COMMAND.findall(text):
        given = parser.parse_args(shlex.split(command.replace("\\\n", "")))
        for kind in KINDS:
            for prefix in getattr(given, kind):
                yield from (Right(kind, prefix, operation) for operation in given.operation)


def rights_of_commands() -> dict[str, list[Right]]:
    """Return the rights of the table of docs/kafka.md, by the name of the command."""
    prefixes = {"topic": ("rag.", "ragmeter-"), "group": ("ragmeter",)}
    text = (ROOT / "docs/kafka.md").read_text("utf-8")
    found: dict[str, list[Right]] = {}
    for command, needs in ROW.findall(text):
        found[command] = [
            Right(kind, prefix, operation)
            for part in needs.split(";")
            for kind in [part.rpartition(" of ")[2].strip().removesuffix("s").replace(" ", "_")]
            for prefix in prefixes.get(kind, ("ragmeter",))
            for operation in re.findall(r"`(\w+)`", part)
        ]
    return found


def grant(place: Place, rights: Sequence[Right]) -> None:
    """Grant them to LIMITED, with the names of a place in place of the default ones."""
    names = {"rag.": place.settings.kafka.topics.prefix, "ragmeter": place.settings.kafka.group}
    names["ragmeter-"] = f"{place.settings.kafka.group}-"
    acls = [
        ACL(
            f"User:{LIMITED}",
            "*",
            ACLOperation[CAPITAL.sub("_", one.operation).upper()],
            ACLPermissionType.ALLOW,
            ResourcePattern(KINDS[one.kind], names[one.prefix], ACLResourcePatternType.PREFIXED),
        )
        for one in rights
    ]
    admin = KafkaAdminClient(bootstrap_servers=place.server.bootstrap)
    admin.create_acls(acls)
    admin.close()


def limited(broker: KafkaServer) -> dict[str, Any]:
    security = {
        "protocol": "SASL_PLAINTEXT",
        "mechanism": "PLAIN",
        "username": LIMITED,
        "password": PASSWORD,
    }
    return {"bootstrap_servers": [broker.sasl], "security": security}
