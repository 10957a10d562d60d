"""Workers under kills and broker restarts on a real Kafka: in short; `make chaos-kafka` in full."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.faults import missed
from tests.chaos.kafka.faults import plan
from tests.chaos.kafka.plan import Plan
from tests.chaos.kafka.run import KafkaRun
from tests.chaos.kafka.traffic import BURST, FEEDBACK, SERVICES, TRACES, messages, sendings
from tests.chaos.kafka.truth import Log, Oracle, alarm_differences, differences
from tests.chaos.kafka.webhook import Received
from tests.chaos.run import run
from tests.real import require_memory
from tests.tables import each_row

COUNT = 'rag_requests_total{service="service-0",status="ok"}'
OTHER = 'rag_requests_total{service="service-1",status="ok"}'
STATE = 'ragmeter_results_total{metric="error",scorer="builtin",state="scored"}'
RECEIVED = 'ragmeter_feedback_received_total{source="kafka"}'
JOINED = 'ragmeter_feedback_total{outcome="joined"}'
AGAIN = 'ragmeter_traces_duplicate_total{source="kafka"}'
NODES_GB = 3.0  # of three brokers (384 MB of heap each at most), two workers and the embedded agent


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("swept")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_kills_and_a_broker_restart_change_no_count(tmp_path: Path) -> None:
    short = Plan(
        traces=4000,
        backlog=0.1,
        look=3.0,
        kills=3,
        terms=0,
        freezes=0,
        joins=1,
        broker_restarts=1,
        session=6.0,
    )
    report = run(KafkaRun(short, tmp_path, say))
    assert not report.differences, str(report)
    assert report.counted == short.traces


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.real
@pytest.mark.usefixtures("swept")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_node_that_is_lost_for_good_changes_no_count(tmp_path: Path) -> None:
    """Of three: with it go a replica of every partition, and the leaders of a third of them."""
    require_memory(NODES_GB)
    lost = Plan(
        traces=2000,
        seed=11,  # the node goes first, a worker soon after it: most is counted without them
        backlog=0.2,
        look=1.0,
        kills=1,
        terms=0,
        freezes=0,
        joins=0,
        broker_restarts=0,
        session=6.0,
        nodes=3,
        lose_node=True,
    )
    report = run(KafkaRun(lost, tmp_path, say))
    assert not report.differences, str(report)
    assert report.counted == lost.traces


def found() -> dict[str, dict[str, float]]:
    return {
        "a": {COUNT: 5.0, STATE: 5.0, AGAIN: 1.0, RECEIVED: 3.0, JOINED: 2.0},
        "b": {OTHER: 7.0, STATE: 7.0, AGAIN: 0.0, JOINED.replace("joined", "repeated"): 1.0},
    }


def truth() -> tuple[Oracle, Log]:
    log = Log(
        good=Counter({"t1": 2, "t2": 1}),
        labels=Counter({b"one": 2, b"other": 1}),
        poison={(TRACES, 0, 3): b"{no"},
        dead=[((TRACES, 0, 3), b"{no"), ((TRACES, 0, 3), b"{no")],
    )
    return Oracle({COUNT: 5.0, OTHER: 7.0, STATE: 12.0}, Counter(), {"t1", "t2"}), log


def test_exports_that_add_up_to_the_truth_have_no_differences() -> None:
    assert differences(found(), *truth()) == []


@each_row(
    ("worker", "name", "value", "notified"),
    [
        ("a", COUNT, 6.0, "is 6.0, 5.0 expected"),
        ("a", STATE, 4.0, "is 11.0, 12.0 expected"),
        ("a", RECEIVED, 4.0, "4 labels are received, the log holds 3"),
        ("a", RECEIVED, 4.0, "3 of 4 labels are joined or known"),
        ("a", JOINED, 1.0, "2 of 3 labels are joined or known"),
        ("b", JOINED.replace("joined", "unmatched"), 1.0, 'outcome="unmatched"} is 1'),
        ("b", "ragmeter_feedback_waiting", 1.0, "1 labels wait"),
        ("b", AGAIN, 1.0, "2 duplicates are counted, the log holds 1"),
        ("b", COUNT, 5.0, "service-0 is exported by two workers"),
        ("b", "ragmeter_unexpected_results_total", 1.0, "1 results were not expected"),
        ("b", OTHER.replace("ok", "timeout"), 1.0, "is 1.0, nothing expected"),
    ],
)
def test_every_difference_is_named(worker: str, name: str, value: float, notified: str) -> None:
    exports = found()
    exports[worker][name] = value
    assert any(notified in line for line in differences(exports, *truth()))


def test_what_is_missing_is_named() -> None:
    oracle, log = truth()
    exports = found()
    del exports["b"]
    assert any(f"{OTHER} is missing, 7.0 expected" in x for x in differences(exports, oracle, log))
    log.dead = [((FEEDBACK, 1, 4), b"good")]
    notified = differences(found(), oracle, log)
    assert notified == [
        "poison at ('rag.traces', 0, 3) is in no dead letter",
        "what is at ('rag.feedback', 1, 4) is no poison",
    ]
    log = Log(good=Counter({"t1": 2, "strange": 1}), labels=log.labels)
    notified = differences(found(), oracle, log)
    assert notified == ["1 traces never reached the broker", "1 traces are not of this run"]


def test_a_notification_may_come_again_and_an_alert_may_not() -> None:
    received = Received()
    body = {"id": "1", "event": "opened", "incident": {"kind": BURST, "service": "s"}}
    oracle = Oracle({}, Counter({(BURST, "s", "opened"): 1}), set())
    assert alarm_differences(received, oracle) == [f"{BURST} s opened: 0 times, 1 expected"]
    assert alarm_differences(received, oracle, [BURST]) == []
    received.take(body)
    received.take(body)
    assert (alarm_differences(received, oracle), received.repeated) == ([], 1)
    received.take({**body, "id": "2"})
    assert alarm_differences(received, oracle, [BURST]) == [
        f"{BURST} s opened: 2 times, 1 expected"
    ]


def test_a_seed_says_what_is_sent_and_what_goes_wrong() -> None:
    sent = list(messages(2000, 3))
    assert sent == list(messages(2000, 3))
    assert sent != list(messages(2000, 4))
    numbers = Counter(number for number, _ in sent if number >= 0)
    assert set(numbers) == set(range(2000))
    assert 2 <= sum(numbers.values()) - 2000 <= 30, "about one in 200 comes twice"
    assert 8 <= sum(number < 0 for number, _ in sent) <= 40, "about one in 100 is poison"
    everything = list(sendings(2000, 3))
    assert everything == list(sendings(2000, 3))
    assert [(one.number, one.body) for one in everything if one.topic == TRACES] == sent
    given = [one.body for one in everything if one.topic == FEEDBACK]
    assert 450 <= len(given) <= 620, "about one in five is labelled, some of them twice"
    assert len(SERVICES) == 12
    made = [
        plan(seed, kills=6, terms=2, freezes=1, joins=2, broker_restarts=3, session=6)
        for seed in (1, 1)
    ]
    assert made[0] == made[1]
    kinds = Counter(fault.kind.partition("-")[0] for fault in made[0])
    assert kinds == {"kill": 6, "term": 2, "freeze": 1, "join": 2, "broker": 3}
    assert [fault.at for fault in made[0]] == sorted(fault.at for fault in made[0])
    done = {"kill": 5, "term": 2, "freeze": 1, "join": 2, "broker-kill": 3, "broker-stop": 3}
    assert missed(made[0], done) == ["6 kill were planned, 5 came"]
