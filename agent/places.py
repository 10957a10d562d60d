"""Numbers for services: each has a part of the saved state that a later one can replace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["Places"]


class Places:
    """The smallest free number for each new service: as many parts are kept as there were services
    at once, however many come and go."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def of(self, service: str) -> int:
        place = self._places.get(service)
        if place is None:
            taken = set(self._places.values())
            place = next(n for n in range(len(taken) + 1) if n not in taken)
            self._places[service] = place
        return place

    def keep(self, services: Iterable[str]) -> None:
        """Free the places of every other service."""
        kept = set(services)
        self._places = {name: place for name, place in self._places.items() if name in kept}

    def parts(self, state: Mapping[str, Any], kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each service with its part `KIND.PLACE` of a saved state; a part that still holds what a
        service before it has left is passed over."""
        for service, slot, part in self.slots(state, kind):
            if not slot and part["service"] == service:
                yield service, part

    def slots(self, state: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str, Any]]:
        """(service, slot, part) of every part `KIND.PLACE` (slot "") and `KIND.PLACE.SLOT` of a
        saved state whose place has a service now; whose it was is for the caller to tell."""
        services = {str(place): service for service, place in self._places.items()}
        for name, part in state.items():
            found, _, rest = name.partition(".")
            place, _, slot = rest.partition(".")
            if found == kind and place in services:
                yield services[place], slot, part

    def dump(self) -> dict[str, int]:
        """JSON-able."""
        return dict(self._places)

    def load(self, saved: Mapping[str, int]) -> None:
        """The inverse of `dump`."""
        self._places = {name: int(place) for name, place in saved.items()}
