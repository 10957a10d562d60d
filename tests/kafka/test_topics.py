"""What the topics should be, and what is said where they are otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.kafka.topics import (
    ActualTopic,
    TopicSpec,
    compare_topic,
    consumed_topics,
    find_topic_problem,
    match_partitions,
    required_topics,
)
from ragmeter.parts.labels.settings import FeedbackSettings

from tests.tables import each_row


def topic(what: str, **kafka: object) -> TopicSpec:
    settings = AgentSettings.model_validate({"kafka": kafka})
    (found,) = [one for one in required_topics(settings, PARTS) if one.what == what]
    return found


def as_wanted(one: TopicSpec) -> ActualTopic:
    return ActualTopic(one.partitions, one.replication or 1, dict(one.configs))


def test_the_names_of_the_states_begin_with_the_group() -> None:
    names = [
        one.name
        for one in required_topics(AgentSettings.model_validate({"kafka": {"group": "g"}}), PARTS)
    ]
    assert names[-1] == "g-aggregates"
    assert names[:3] == ["rag.traces", "rag.spans", "g-open-spans"]
    assert names[3:7] == ["rag.scores", "rag.dead", "rag.feedback", "rag.control"]


def test_without_otlp_there_are_no_topics_for_spans() -> None:
    settings = AgentSettings.model_validate({"kafka": {"traces_encoding": "native"}})
    assert not [one.name for one in required_topics(settings, PARTS) if "spans" in one.name]
    assert consumed_topics(settings, PARTS) == ("rag.traces", "rag.scores", "rag.feedback")


def test_what_the_workers_read() -> None:
    assert consumed_topics(AgentSettings(), PARTS) == (
        "rag.traces",
        "rag.spans",
        "rag.scores",
        "rag.feedback",
    )
    none = AgentSettings.model_validate({"feedback": {"traces": 0}})
    assert "rag.feedback" not in consumed_topics(none, PARTS)


def test_the_largest_trace_fits_into_its_topics() -> None:
    settings = AgentSettings.model_validate({"limits": {"trace_bytes": 5_000_000}})
    for one in required_topics(settings, PARTS):
        if one.what in ("traces in", "spans", "open spans", "dead letters"):
            assert int(one.configs["max.message.bytes"]) > 5_000_000


def test_three_copies_are_acknowledged_by_two() -> None:
    assert topic("state", replication=3).configs["min.insync.replicas"] == "2"
    assert "min.insync.replicas" not in topic("state", replication=2).configs


@pytest.mark.parametrize("what", ["traces in", "scored traces", "state", "control"])
def test_what_is_as_wanted_differs_in_nothing(what: str) -> None:
    one = topic(what)
    assert compare_topic(one, as_wanted(one)) == []


@each_row(
    ("what", "change", "safe", "words"),
    [
        ("traces in", {"partitions": 4}, True, "partitions is 4, not 8: what is new"),
        ("feedback", {"partitions": 4}, True, "partitions is 4, not 8: what is new"),
        ("feedback", {"message.timestamp.type": "CreateTime"}, True, "at once"),
        ("scored traces", {"partitions": 16}, False, "cannot take partitions away"),
        ("scored traces", {"partitions": 4}, False, "move away from their state"),
        ("state", {"partitions": 4}, False, "begins anew"),
        ("spans", {"partitions": 4}, False, "torn in two"),
        ("open spans", {"partitions": 4}, False, "are lost"),
        ("dead letters", {"partitions": 4}, False, "cannot take partitions away"),
        ("traces in", {"retention.ms": "3600000"}, True, "more disk"),
        ("traces in", {"retention.ms": "-1"}, False, "older than 72 h is deleted"),
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
    fields = {key: change[key] for key in ("partitions",) if key in change}
    configs = {key: value for key, value in change.items() if key not in fields}
    found = as_wanted(one)
    found = replace(found, configs=found.configs | configs, **fields)  # type: ignore[arg-type]
    (row,) = compare_topic(one, found)
    assert row.safe is safe
    assert words in str(row)


def test_more_partitions_of_traces_than_of_scores_are_right() -> None:
    for what in ("traces in", "feedback"):
        one = topic(what)
        assert compare_topic(one, replace(as_wanted(one), partitions=12)) == []


def test_replication_is_not_ours_to_change() -> None:
    one = topic("traces in", replication=3)
    (row,) = compare_topic(one, replace(as_wanted(one), replication=1))
    assert (row.key, row.safe) == ("replication", False)
    assert compare_topic(topic("traces in"), replace(as_wanted(one), replication=1)) == []


def test_the_state_has_the_partitions_of_the_scores_that_are_there() -> None:
    topics = required_topics(AgentSettings(), PARTS)
    parts = {
        one.what: one.partitions
        for one in match_partitions(topics, {"rag.scores": ActualTopic(3, 1)})
    }
    assert parts["state"] == 3
    assert parts["scored traces"] == 8
    assert match_partitions(topics, {}) == topics


def test_a_worker_is_told_what_is_missing_or_divided_otherwise() -> None:
    settings = AgentSettings.model_validate({"kafka": {"group": "g", "partitions": 4}})
    there = {one.name: one.partitions for one in required_topics(settings, PARTS)}
    assert find_topic_problem(settings, PARTS, there) == ""
    # nothing of these is needed, or hangs on the number
    more = there | {"rag.traces": 7, "rag.dead": 3}
    more["rag.feedback"] = 5
    assert find_topic_problem(settings, PARTS, more) == ""
    del more["rag.feedback"]
    assert "no topic rag.feedback" in find_topic_problem(settings, PARTS, more)
    assert (
        find_topic_problem(
            settings.model_copy(update={"feedback": FeedbackSettings(traces=0)}), PARTS, more
        )
        == ""
    )
    gone = {name: many for name, many in there.items() if name not in ("rag.scores", "rag.dead")}
    assert find_topic_problem(settings, PARTS, gone) == (
        "there is no topic rag.scores, rag.dead; make it with `ragmeter kafka init`"
    )
    for name in ("rag.scores", "g-aggregates"):
        assert find_topic_problem(settings, PARTS, there | {name: 6}) == (
            f"{name} has 6 partitions, kafka.partitions is 4;"
            " `ragmeter kafka init` says what can be done"
        )
