"""The page on which people label, and which state of services has the labels of a service."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from ragmeter.parts.labels.pool import LabelPool

LABEL_PAGE = "/label/{service}"


class LabelPlace(Protocol):
    """The part in one state of services."""

    @property
    def pool(self) -> LabelPool:
        """The traces that people may be asked to label."""

    def counts(self, service: str) -> bool:
        """Return whether traces of a service are counted here."""


_P = TypeVar("_P", bound=LabelPlace)


def choose_place(places: Iterable[_P], service: str) -> _P | None:
    """Return the place that counts a service, of several one with a draw."""

    def rank(place: _P) -> tuple[bool, int]:
        drawn, _, waiting = place.pool.state(service)
        return bool(drawn), waiting

    return max((one for one in places if one.counts(service)), key=rank, default=None)
