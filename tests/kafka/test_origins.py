"""Records of the score stage that come again are recognised, whatever was ended and when."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from ragmeter.kafka.origins import ORIGIN_HEADER, Origin, SourceMarks, new_epoch, read_origin

from tests.tables import each_row

MESSAGES = 60
SERVICES = 3
Sent = tuple[Origin, list[int]]
"""A record, and the offsets of its traces."""


class Story:
    """A source partition, a partition of the scores, and workers that end at any moment.

    Offsets have holes, as of aborted transactions and compaction; some messages make no record.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.offsets = sorted(self.chance.sample(range(3 * MESSAGES), MESSAGES))
        self.silent = set(self.chance.sample(self.offsets, 6))  # dead letters, say
        self.end = self.offsets[-1] + 1
        self.committed = 0
        self.log: list[Sent] = []

    def worker(self) -> Iterator[None]:
        """Read from what is committed to the end; it may end, or stand still, at each `yield`."""
        position = self.committed
        yield
        while position < self.end:
            size = self.chance.randint(1, 9)
            batch = [one for one in self.offsets if one >= position][:size]
            for record in self.records(position, batch):
                for _ in range(self.chance.choice((1, 1, 1, 2))):  # a producer repeats some
                    self.log.append(record)
                    yield
            position = batch[-1] + 1
            if self.chance.random() < 0.7:  # not each is committed, and some late
                yield
                self.committed = position
                yield

    def records(self, first: int, batch: list[int]) -> list[Sent]:
        """One a service in any order; what is refused is parted and sent after the others."""
        found: list[Sent] = []
        for service in range(SERVICES):
            own = [one for one in batch if one % SERVICES == service and one not in self.silent]
            refused = own and self.chance.random() < 0.2
            for offsets in [[one] for one in own] if refused else [own]:
                if offsets:
                    found.append((Origin("t", 0, 7, first, offsets[0]), offsets))
        self.chance.shuffle(found)
        return found

    def run(self) -> None:
        """Three workers at a time go on by turns: zombies write among what others write."""
        running = [self.worker() for _ in range(3)]
        for _ in range(200):
            number = self.chance.randrange(len(running))
            if self.chance.random() < 0.1 or next(running[number], 1) == 1:
                running[number] = self.worker()
        for _ in self.worker():
            pass


def count(log: list[Sent], chance: random.Random) -> Counter[int]:
    """What an owner counts that ends now and then, and goes on from its last step."""
    counted = Counter[int]()
    step = 0, "[]", counted.copy()
    marks = SourceMarks()
    at = 0
    while at < len(log):
        origin, offsets = log[at]
        counted.update(one for one in offsets if marks.take(origin, one))
        at += 1
        if chance.random() < 0.2:
            step = at, json.dumps(marks.saved()), counted.copy()
        elif chance.random() < 0.1:
            at, saved, kept = step
            marks = SourceMarks()
            marks.restore(json.loads(saved))
            counted = kept.copy()
    return counted


@each_row("seed", range(200))
def test_each_message_counts_once_whoever_ends_and_wakes(seed: int) -> None:
    story = Story(seed)
    story.run()
    counted = count(story.log, story.chance)
    assert counted == Counter(set(story.offsets) - story.silent)


def test_the_stories_hold_repetitions() -> None:
    """Else the one above would show nothing."""
    repeated = []
    for seed in range(20):
        story = Story(seed)
        story.run()
        repeated.append(sum(len(offsets) for _, offsets in story.log) / MESSAGES)
    assert min(repeated) > 1.3


def test_what_a_partition_remembers_is_what_is_not_yet_acknowledged() -> None:
    marks = SourceMarks()
    for offset in range(100):
        assert marks.take(Origin("t", 0, 1, offset // 10 * 10, offset))
    (mark,) = marks.saved()
    assert (mark["first"], mark["above"]) == (90, [[offset, 0] for offset in range(90, 100)])
    assert not marks.take(Origin("t", 0, 1, 0, 5))
    assert marks.take(Origin("t", 1, 1, 0, 5)), "of another partition"
    assert marks.take(Origin("f", 0, 1, 0, 5)), "of another topic"
    assert marks.take(Origin("t", 0, 1, 90, 95, 1)), "another record of a message"


def test_a_partition_that_is_read_anew_counts_anew(caplog: pytest.LogCaptureFixture) -> None:
    """Its topic was made anew: its offsets begin at 0 again."""
    marks = SourceMarks()
    assert marks.take(Origin("t", 0, 1, 5000, 5000))
    assert marks.take(Origin("t", 0, 2, 0, 0))
    assert not marks.take(Origin("t", 0, 1, 5000, 5001)), "of a worker that was replaced"
    assert "records of an earlier reading are left out" in caplog.text
    assert marks.take(Origin("t", 0, 2, 0, 1))


def test_a_later_reading_has_a_higher_number_whatever_the_clock_says() -> None:
    assert new_epoch() > 1_700_000_000_000
    assert new_epoch(10**15) == 10**15 + 1


def test_an_origin_is_what_its_header_says() -> None:
    origin = Origin("rag.traces", 3, 5, 10, 12, 1)
    assert read_origin([("a", b"b"), (ORIGIN_HEADER, origin.encode())]) == origin
    for value in (b"", b"rag.traces/3/5", b"a/b/c/d/e/f", b"\xff/1/2/3/4/5"):
        assert read_origin([(ORIGIN_HEADER, value)]) is None
    assert read_origin(None) is None
    assert SourceMarks().take(None), "a record that says nothing counts as it comes"
