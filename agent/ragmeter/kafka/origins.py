"""Where the records of the score stage come from, and which of them a partition has had.

The score stage sends each record at least once: whoever begins again sends again what follows the
committed offset, a worker that was replaced and wakes may send what it had begun, and a producer
may repeat a record. So each record says which messages it comes from, and which offset `first` was
the lowest whose records were not yet acknowledged when it was sent. Records of the messages before
`first` therefore lie before this one, in every partition. Whoever reads a partition need only
remember the highest `first` of each source partition, and what it has had from there on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import PlainSerializer, TypeAdapter

log = logging.getLogger(__name__)

ORIGIN_HEADER = "source"


class Origin(NamedTuple):
    """The message that a record comes from, or the first of several.

    `part` numbers the records that one message becomes. `epoch` is of the reading: a source
    partition that is read anew, because its topic was or because somebody has moved the offset, is
    read in a later one.
    """

    topic: str
    partition: int
    epoch: int
    first: int
    offset: int
    part: int = 0

    def encode(self) -> bytes:
        """Return the value of the header."""
        return "/".join(map(str, self)).encode()


def read_origin(headers: Iterable[tuple[str, bytes]] | None) -> Origin | None:
    """Return what the header says, None without a valid one: such a record counts as it comes."""
    value = dict(headers or ()).get(ORIGIN_HEADER, b"")
    try:
        topic, *numbers = value.decode().split("/")
        partition, epoch, first, offset, part = map(int, numbers)
    except ValueError:
        return None
    return Origin(
        topic=topic,
        partition=partition,
        epoch=epoch,
        first=first,
        offset=offset,
        part=part,
    )


def new_epoch(last: int = 0) -> int:
    """Return the number of a reading after `last`."""
    return max(int(time.time() * 1000), last + 1)


@dataclass(slots=True)
class SourceMark:
    """What was had of a source partition: all before `first`, and the messages `above` it."""

    topic: str
    partition: int
    epoch: int
    first: int
    above: Annotated[set[tuple[int, int]], PlainSerializer(sorted)] = field(default_factory=set)


_MARKS = TypeAdapter(list[SourceMark])


class SourceMarks:
    """What a partition of the scores or spans has had of each source partition.

    It holds what the records of a batch that is not yet acknowledged say: some hundred numbers.
    """

    def __init__(self) -> None:
        self._marks: dict[tuple[str, int], SourceMark] = {}
        self._warned: set[tuple[str, int]] = set()

    def take(self, origin: Origin | None, offset: int | None = None) -> bool:
        """Return whether a message has not come before, and remember that it has.

        Args:
            origin: That of its record.
            offset: Of the message, where the record comes of several.
        """
        if origin is None:
            return True
        source = origin.topic, origin.partition
        mark = self._marks.get(source)
        if mark is None or mark.epoch < origin.epoch:
            mark = SourceMark(
                topic=origin.topic,
                partition=origin.partition,
                epoch=origin.epoch,
                first=origin.first,
            )
            self._marks[source] = mark
            self._warned.discard(source)
        elif origin.epoch < mark.epoch:
            if source not in self._warned:
                log.warning("%s/%d: records of an earlier reading are left out", *source)
                self._warned.add(source)
            return False
        elif mark.first < origin.first:
            mark.first = origin.first
            mark.above = {one for one in mark.above if one[0] >= mark.first}
        message = (origin.offset if offset is None else offset), origin.part
        if message[0] < mark.first or message in mark.above:
            return False
        mark.above.add(message)
        return True

    def saved(self) -> list[Any]:
        """Return what a restart goes on with, JSON-able, in one order for equal marks."""
        marks = [mark for _, mark in sorted(self._marks.items())]
        return list(_MARKS.dump_python(marks, mode="json"))

    def restore(self, saved: Sequence[Any]) -> None:
        """Go on from what was saved.

        Raises:
            ValueError: It makes no sense.
        """
        self._marks = {(mark.topic, mark.partition): mark for mark in _MARKS.validate_python(saved)}
