"""Each command of a user with exactly the rights that the documentation names, or one less."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.structs import OffsetAndMetadata
from ragmeter.cli.main import app
from ragmeter.kafka.operator.clients import ask
from typer.testing import CliRunner

from tests.kafka.operator.test_redrive import bury
from tests.kafka.place import Place
from tests.kafka.rights import Right, grant, limited, rights_of_commands
from tests.kafka_server import KafkaServer
from tests.traces import trace_line
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]

CURE = re.compile(r"docs/kafka\.md, Rights|or let the user Describe it")
DOCUMENTED = rights_of_commands()
COMMANDS = {
    "`kafka init`": ["kafka init"],
    "`kafka init` of missing topics": ["kafka init"],
    "`kafka init --apply`": ["kafka init --apply"],
    "`kafka lag`": ["kafka lag"],
    "`replay --to kafka`": ["replay traces.jsonl --to kafka"],
    "`kafka dlq list`, `kafka dlq show`": ["kafka dlq list", "kafka dlq show 0"],
    "`kafka dlq redrive`": ["kafka dlq redrive"],
    "`kafka rebuild`": ["kafka rebuild"],
}
CASES = [(name, command) for name, commands in COMMANDS.items() for command in commands]
LESS = [
    # a rebuild that leaves half of the old state is the one that nobody would notice
    pytest.param(name, command, missing, marks=() if "rebuild" in name else pytest.mark.long)
    for name, command in CASES
    for missing in sorted({(one.kind, one.operation) for one in DOCUMENTED[name]})
]


def leave_work(place: Place, name: str) -> None:
    """Leave something to do for a command that only does what is needed."""
    kafka = place.settings.kafka

    def prepare(admin: KafkaAdminClient) -> None:
        if name in ("`kafka init` of missing topics", "`kafka init --apply`"):
            admin.delete_topics([kafka.topics.control])
            until(lambda: kafka.topics.control not in admin.list_topics())
        if name == "`kafka init --apply`":
            place.kafka |= {"partitions": place.partitions + 1, "retention_hours": 24}
        elif name == "`kafka rebuild`":
            done = {TopicPartition(kafka.topics.scores, 0): OffsetAndMetadata(0, "", -1)}
            admin.alter_group_offsets(kafka.group, done)

    ask(kafka, prepare)


def run(place: Place, folder: Path, name: str, command: str, rights: Sequence[Right]) -> str:
    """The output of a command that a user with these rights gives."""
    place.make()
    bury(place.settings, [trace_line()])
    leave_work(place, name)
    config = folder / "limited.json"
    config.write_text(json.dumps({"kafka": place.kafka | limited(place.server)}))
    traces = folder / "traces.jsonl"
    traces.write_bytes(trace_line())
    grant(place, rights)
    words = command.replace("traces.jsonl", str(traces)).split()
    done = CliRunner().invoke(app, [*words, "--config", str(config)])
    return " ".join(done.output.split())


@pytest.fixture
def empty_place(broker: KafkaServer, tmp_path: Path) -> Place:
    return Place(broker, tmp_path, made=False)


def test_the_documentation_names_the_commands() -> None:
    assert DOCUMENTED.keys() == COMMANDS.keys()


@pytest.mark.parametrize(("name", "command"), CASES)
def test_the_documented_rights_are_enough(
    empty_place: Place, tmp_path: Path, name: str, command: str
) -> None:
    output = run(empty_place, tmp_path, name, command, DOCUMENTED[name])
    assert not CURE.search(output)
    assert "ragmeter:" not in output  # as every error begins


@pytest.mark.parametrize(("name", "command", "missing"), LESS)
def test_with_one_right_less_it_is_told_which(
    empty_place: Place, tmp_path: Path, name: str, command: str, missing: tuple[str, str]
) -> None:
    rights = [one for one in DOCUMENTED[name] if (one.kind, one.operation) != missing]
    output = run(empty_place, tmp_path, name, command, rights)
    assert CURE.search(output)
