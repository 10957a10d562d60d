from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter
from ragmeter.parts.index.totals import KEPT_IDS, KEPT_SECONDS, KEPT_VERSIONS, Indexes, IndexState

from tests.parts.index.samples import event

STATE: TypeAdapter[IndexState] = TypeAdapter(IndexState)


def made(most: int = 10, chars: int = 40) -> tuple[Indexes, list[int]]:
    over: list[int] = []
    return Indexes(most, chars, lambda: over.append(1)), over


def values(found: Indexes, name: str) -> dict[tuple[str, ...], float]:
    """By index and version, and what other labels there are."""
    return {
        tuple(value for label, value in labels if label != "service"): value
        for gauge, labels, value in found.gauges()
        if gauge == f"rag_index_{name}"
    }


def kept(found: Indexes, rows: dict[str, Any]) -> dict[str, Any]:
    """Rows as a store keeps them, with the changes since the last call."""
    for name, state in found.changes().items():
        if state is None:
            rows.pop(name, None)  # it may have come and gone since the last call
        else:
            rows[name] = STATE.dump_python(state, mode="json")
    return json.loads(json.dumps(rows))  # type: ignore[no-any-return]


def restored(rows: dict[str, Any]) -> Indexes:
    found, _ = made()
    found.restore({name: STATE.validate_python(row) for name, row in rows.items()})
    return found


def test_rates_by_hand() -> None:
    found, _ = made()
    assert found.add(event(1)) == "counted"
    assert (
        found.add(
            event(
                2, documents={"processed": 10, "no_chunks": 3}, chunks=None, tokens_per_chunk=None
            )
        )
        == "counted"
    )
    key = ("kb", "v1")
    assert values(found, "documents") == {key: 50}
    assert values(found, "no_chunk_ratio") == {key: 5 / 50}
    assert values(found, "chunks") == {key: 100}
    assert values(found, "skipped_ratio")[key] == 0.1
    assert values(found, "skipped_chunks") == {
        (*key, "too_long"): 6,
        (*key, "empty"): 3,
        (*key, "not_reported"): 1,
    }
    assert values(found, "chunk_tokens_min") == {key: 10}
    assert values(found, "chunk_tokens_mean") == {key: 400.5}
    assert values(found, "chunk_tokens_max") == {key: 500}
    assert values(found, "chunk_tokens_p95") == {key: pytest.approx(500, rel=0.01)}
    assert values(found, "info") == {(*key, "recursive-512", "e5-small"): 1}


def test_documents_by_type_add_up_to_all_documents() -> None:
    found, _ = made()
    pdf = {"processed": 30, "no_chunks": 2}
    found.add(event(1, documents={"processed": 40, "no_chunks": 2, "by_type": {"pdf": pdf}}))
    html = {"processed": 10, "no_chunks": 0}
    by_type = {
        "pdf": {"processed": 5, "no_chunks": 5},
        "html": html,
        "empty": dict.fromkeys(pdf, 0),
    }
    found.add(event(2, documents={"processed": 15, "no_chunks": 5, "by_type": by_type}))
    found.add(event(3, documents={"processed": 10, "no_chunks": 1}))
    key = ("kb", "v1")
    documents = {
        (*key, "pdf"): 35,
        (*key, "html"): 10,
        (*key, "empty"): 0,
        (*key, "not_reported"): 20,
    }
    assert values(found, "type_documents") == documents
    assert sum(documents.values()) == values(found, "documents")[key]
    assert values(found, "type_no_chunk_ratio") == {
        (*key, "pdf"): 7 / 35,
        (*key, "html"): 0.0,
        (*key, "not_reported"): 1 / 20,
    }
    again = restored(kept(found, {}))
    assert again.gauges() == found.gauges()
    many = {f"t{number}": {"processed": 1, "no_chunks": 0} for number in range(50)}
    found.add(event(4, documents={"processed": 50, "no_chunks": 0, "by_type": many}))
    assert len(values(found, "type_documents")) == 17
    assert sum(values(found, "type_documents").values()) == 115


def test_what_nobody_reported_has_no_rate() -> None:
    found, _ = made()
    found.add(event(documents=None, chunks={"attempted": 0, "embedded": 0}, tokens_per_chunk=None))
    names = {name for name, _, _ in found.gauges()}
    assert not names & {"rag_index_no_chunk_ratio", "rag_index_skipped_ratio"}
    assert not any("tokens" in name for name in names)


def test_a_repeated_event_counts_once_after_a_restart_too() -> None:
    found, _ = made()
    assert [found.add(event(1)), found.add(event(1)), found.add(event(2))] == [
        "counted",
        "duplicate",
        "counted",
    ]
    again = restored(kept(found, {}))
    assert again.gauges() == found.gauges()
    assert again.add(event(2)) == "duplicate"
    assert again.add(event(2, service="other")) == "counted", "ids are a service's own"


def test_rows_that_change_are_saved_and_no_others() -> None:
    found, _ = made()
    found.add(event(1))
    found.add(event(1, service="other"))
    rows = kept(found, {})
    assert found.changes() == {}
    found.add(event(2))
    before = dict(rows)
    rows = kept(found, rows)
    changed = {name for name in rows if rows[name] != before[name]}
    assert changed == {'["bot"]', '["bot", "kb"]'}, "the ids of the service, and the index"
    assert restored(rows).gauges() == found.gauges()


def test_versions_stand_side_by_side_and_the_oldest_goes() -> None:
    found, _ = made()
    for number in range(KEPT_VERSIONS + 1):
        assert found.add(event(number, index_version=f"v{number}")) == "counted"
    kept = [(one.version, one.current) for one in found.versions()]
    newest = [f"v{number}" for number in range(KEPT_VERSIONS, 0, -1)]
    assert kept == [(name, name == newest[0]) for name in newest]
    assert found.add(event(0, event_id="late", index_version="v0")) == "old_version"
    assert len(list(found.versions("bot"))) == KEPT_VERSIONS
    assert list(found.versions("nobody")) == []


def test_two_ways_of_making_one_version_are_both_shown() -> None:
    found, _ = made()
    found.add(event(1))
    found.add(event(2, embedding_model="e5-large"))
    assert set(values(found, "info")) == {
        ("kb", "v1", "recursive-512", "e5-small"),
        ("kb", "v1", "recursive-512", "e5-large"),
    }
    for number in range(20):
        found.add(event(10 + number, chunker=f"c{number}"))
    assert len(values(found, "info")) == 4


def test_a_flood_of_names_is_bounded() -> None:
    found, over = made(most=3, chars=20)
    for number in range(50):
        skipped = {f"because {number} {'x' * 300}\n": 1}
        found.add(
            event(
                number,
                service=f"s{number}\x1b[31m" + "y" * 400,
                chunks={"attempted": 100, "embedded": 90, "skipped": skipped},
            )
        )
    assert len({(one.service, one.name) for one in found.versions()}) == 4
    assert len(over) == 47
    labels = [pairs for _, pairs, _ in found.gauges()]
    assert all(len(value) <= 20 and value.isprintable() for row in labels for _, value in row)
    reasons = [row[-1][1] for row in labels if row[-1][0] == "reason" and row[0][1] == "__other__"]
    assert len(reasons) <= 17
    assert {"__other__", "not_reported"} <= set(reasons)
    assert len(found.changes()) <= 4 + 4


def test_ids_are_bounded() -> None:
    found, _ = made()
    for number in range(KEPT_IDS + 5):
        found.add(event(number, chunks=None, tokens_per_chunk=None))
    assert found.add(event(KEPT_IDS + 4)) == "duplicate"
    assert found.add(event(0)) == "counted", "forgotten"


def test_an_index_that_is_silent_for_long_makes_room() -> None:
    found, over = made(most=1)
    found.add(event(1))
    rows = kept(found, {})
    assert found.add(event(2, index="new")) == "counted"
    assert over == [1]
    at = 1_790_000_000 + KEPT_SECONDS + 10
    found.add(event(3, index="newer"), at)
    assert [one.name for one in found.versions()] == ["newer"]
    rows = kept(found, rows)
    assert '["bot", "newer"]' in rows
    assert '["bot", "kb"]' not in rows, "deleted"
    assert [one.name for one in restored(rows).versions()] == ["newer"]


def test_of_equal_times_the_oldest_version_gives_way() -> None:
    """Versions of one time are told apart by the order in which they came."""
    found, _ = made()
    for number in range(KEPT_VERSIONS):
        found.add(event(number, index_version=f"v{number}"), at=1_790_000_000.0)
    assert found.add(event(90, index_version="new"), at=1_790_000_001.0) == "counted"
    assert {one.version for one in found.versions()} == {"new", "v1", "v2", "v3", "v4"}


def test_a_version_as_old_as_the_oldest_takes_no_place() -> None:
    found, _ = made()
    for number in range(KEPT_VERSIONS):
        at = 1_790_000_000.0 + number
        found.add(event(number, index_version=f"v{number}"), at=at)
    assert found.add(event(90, index_version="new"), at=1_790_000_000.0) == "old_version"
    assert {one.version for one in found.versions()} == {"v0", "v1", "v2", "v3", "v4"}


@pytest.mark.parametrize("names", [("v1", "v2"), ("v2", "v1")])
def test_of_equal_times_the_first_name_is_current_whichever_came_first(
    names: tuple[str, str],
) -> None:
    found, _ = made()
    for number, name in enumerate(names):
        found.add(event(number, index_version=name), at=1_790_000_000.0)
    assert [(one.version, one.current) for one in found.versions()] == [
        ("v1", True),
        ("v2", False),
    ]


def test_an_event_that_comes_late_does_not_set_back_the_time_of_its_version() -> None:
    found, _ = made()
    found.add(event(1), at=1_790_000_060.0)
    found.add(event(2), at=1_790_000_000.0)
    assert values(found, "last_event_timestamp_seconds") == {("kb", "v1"): 1_790_000_060.0}
