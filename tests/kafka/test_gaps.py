"""Offsets that were passed over end the worker; those of a new generation may begin anywhere."""

from __future__ import annotations

import pytest

from agent.kafka.gaps import Gap, NoGaps


def test_a_gap_is_told() -> None:
    gaps = NoGaps("rag.traces")
    for offset in (7, 8, 9):
        gaps.check(0, 1, offset)
    with pytest.raises(Gap, match=r"rag\.traces/0: offset 11 came after 9"):
        gaps.check(0, 1, 11)


def test_seeks_and_generations_are_no_gaps() -> None:
    gaps = NoGaps("rag.traces")
    for partition, generation, offset in (
        *((0, 1, 7), (1, 1, 100), (0, 1, 8)),
        (0, 1, 5),  # sought anew: what was not acknowledged comes again
        *((0, 1, 6), (0, 2, 50), (0, 2, 51)),
        (0, 1, 7),  # left in a buffer by the generation before
        (0, 2, 52),
    ):
        gaps.check(partition, generation, offset)
    with pytest.raises(Gap):
        gaps.check(1, 1, 102)
