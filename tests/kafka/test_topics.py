"""What the topics should be, and what is said where they are otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.config import Settings
from agent.kafka.topics import Found, Topic, amiss, differences, fitted, read, wanted
from agent.settings.feedback import Feedback


def topic(what: str, **kafka: object) -> Topic:
    settings = Settings.model_validate({"kafka": kafka})
    (found,) = [one for one in wanted(settings) if one.what == what]
    return found


def as_wanted(one: Topic) -> Found:
    return Found(one.partitions, one.replication or 1, dict(one.configs))


def test_the_names_are_those_that_faust_will_use() -> None:
    names = [one.name for one in wanted(Settings.model_validate({"kafka": {"group": "g"}}))]
    assert names[-2:] == ["g-state-changelog", "g-__assignor-__leader"]
    assert names[:3] == ["rag.traces", "rag.spans", "g-spans-changelog"]
    assert names[3:7] == ["rag.scores", "rag.dead", "rag.feedback", "rag.control"]


def test_without_otlp_there_are_no_topics_for_spans() -> None:
    settings = Settings.model_validate({"kafka": {"traces_encoding": "native"}})
    assert not [one.name for one in wanted(settings) if "spans" in one.name]
    assert read(settings) == ("rag.traces", "rag.scores", "rag.feedback")


def test_what_the_workers_read() -> None:
    assert read(Settings()) == ("rag.traces", "rag.spans", "rag.scores", "rag.feedback")
    none = Settings.model_validate({"feedback": {"traces": 0}})
    assert "rag.feedback" not in read(none)


def test_the_largest_trace_fits_into_its_topics() -> None:
    settings = Settings.model_validate({"limits": {"trace_bytes": 5_000_000}})
    for one in wanted(settings):
        if one.what in ("traces in", "spans", "open spans", "dead letters"):
            assert int(one.configs["max.message.bytes"]) > 5_000_000


def test_three_copies_are_acknowledged_by_two() -> None:
    assert topic("state", replication=3).configs["min.insync.replicas"] == "2"
    assert "min.insync.replicas" not in topic("state", replication=2).configs


@pytest.mark.parametrize("what", ["traces in", "scored traces", "state", "control"])
def test_what_is_as_wanted_differs_in_nothing(what: str) -> None:
    one = topic(what)
    assert differences(one, as_wanted(one)) == []


@pytest.mark.parametrize(
    ("what", "change", "safe", "words"),
    [
        ("traces in", {"partitions": 4}, True, "partitions is 4, not 8: what is new"),
        ("feedback", {"partitions": 4}, True, "partitions is 4, not 8: what is new"),
        ("feedback", {"message.timestamp.type": "CreateTime"}, True, "at once"),
        ("traces in", {"partitions": 16}, False, "cannot take partitions away"),
        ("scored traces", {"partitions": 4}, False, "move away from their state"),
        ("state", {"partitions": 4}, False, "begins anew"),
        ("spans", {"partitions": 4}, False, "torn in two"),
        ("open spans", {"partitions": 4}, False, "are lost"),
        ("dead letters", {"partitions": 4}, False, "cannot take partitions away"),
        ("traces in", {"retention.ms": "3600000"}, True, "more disk"),
        ("traces in", {"retention.ms": "-1"}, False, "older than 72 h is deleted"),
        ("traces in", {"retention.ms": "-1", "empty": True}, True, "older than 72 h"),
        ("traces in", {"retention.ms": None}, False, "older than 72 h is deleted"),
        ("traces in", {"cleanup.policy": "compact"}, False, "is deleted"),
        ("state", {"cleanup.policy": "delete"}, True, "is lost"),
        ("traces in", {"max.message.bytes": "1048588"}, True, "at once"),
        ("traces in", {"max.message.bytes": "99999999"}, False, "are refused"),
    ],
)
def test_a_difference_says_what_its_end_costs(
    what: str, change: dict[str, object], safe: bool, words: str
) -> None:
    one = topic(what)
    fields = {key: change[key] for key in ("partitions", "empty") if key in change}
    configs = {key: value for key, value in change.items() if key not in fields}
    found = as_wanted(one)
    found = replace(found, configs=found.configs | configs, **fields)  # type: ignore[arg-type]
    (row,) = differences(one, found)
    assert row.safe is safe
    assert words in str(row)


def test_replication_is_not_ours_to_change() -> None:
    one = topic("traces in", replication=3)
    (row,) = differences(one, replace(as_wanted(one), replication=1))
    assert (row.key, row.safe) == ("replication", False)
    assert differences(topic("traces in"), replace(as_wanted(one), replication=1)) == []


def test_the_state_has_the_partitions_of_the_scores_that_are_there() -> None:
    topics = wanted(Settings())
    parts = {one.what: one.partitions for one in fitted(topics, {"rag.scores": Found(3, 1)})}
    assert parts["state"] == 3
    assert parts["scored traces"] == 8
    assert fitted(topics, {}) == topics


def test_a_worker_is_told_what_is_missing_or_divided_otherwise() -> None:
    settings = Settings.model_validate({"kafka": {"group": "g", "partitions": 4}})
    there = {one.name: one.partitions for one in wanted(settings)}
    assert amiss(settings, there) == ""
    # nothing of these is needed, or hangs on the number
    more = there | {"rag.traces": 7, "rag.dead": 3}
    more["rag.feedback"] = 5
    del more["g-__assignor-__leader"]
    assert amiss(settings, more) == ""
    del more["rag.feedback"]
    assert "no topic rag.feedback" in amiss(settings, more)
    assert amiss(settings.model_copy(update={"feedback": Feedback(traces=0)}), more) == ""
    gone = {name: many for name, many in there.items() if name not in ("rag.scores", "rag.dead")}
    assert amiss(settings, gone) == (
        "there is no topic rag.scores, rag.dead; make it with `ragmeter kafka init`"
    )
    for name in ("rag.scores", "g-state-changelog"):
        assert amiss(settings, there | {name: 6}) == (
            f"{name} has 6 partitions, kafka.partitions is 4;"
            " `ragmeter kafka init` says what can be done"
        )
