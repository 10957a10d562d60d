"""The part as its contract has it."""

from __future__ import annotations

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.app.parts import PARTS
from ragmeter.config.settings import Settings
from ragmeter.parts.collection import Parts
from ragmeter.parts.index.part import IndexPart
from ragmeter_exporters.families import part_families
from ragmeter_exporters.page.rendering import render_parts

from tests.exporters.fakes import FakeAgent
from tests.parts.index.samples import event


def made() -> tuple[Parts, IndexPart]:
    parts = Aggregator(Settings(), [], [], parts=(IndexPart,)).parts
    part = parts["index"]
    assert isinstance(part, IndexPart)
    return parts, part


def test_it_is_listed() -> None:
    assert IndexPart in PARTS


def test_its_samples_have_the_labels_that_it_declares() -> None:
    parts, part = made()
    part.receive(event(1), 1_790_000_001.0, "http")
    part.receive(
        event(
            2,
            documents={
                "processed": 4,
                "no_chunks": 1,
                "by_type": {"pdf": {"processed": 4, "no_chunks": 1}},
            },
        ),
        1_790_000_002.0,
        "http",
    )
    families = {family.name: family for family in part_families((IndexPart,))}
    found = {name: tuple(label for label, _ in labels) for name, labels, _ in parts.samples()}
    assert found == {
        name: family.labels for name, family in families.items() if family.type != "counter"
    }


def test_its_rows_restore_it() -> None:
    parts, part = made()
    part.receive(event(1), 1_790_000_001.0, "http")
    changed, deleted = parts.changes()
    assert set(changed) == {'index/["bot"]', 'index/["bot", "kb"]'}
    assert deleted == []
    again, _ = made()
    again.restore({**changed, "next_step": None})
    assert list(again.samples()) == list(parts.samples())


def test_its_fragment_shows_the_index_of_its_service() -> None:
    parts, part = made()
    part.receive(event(1), 1_790_000_001.0, "http")
    agent = FakeAgent(part_kinds=(IndexPart,), parts=parts)
    (fragment,) = render_parts(agent.part_pages("bot"))
    assert "recursive-512 + e5-small" in fragment
    assert agent.part_pages("another") == []
