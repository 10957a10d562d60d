"""What the ports did not let in, as a counter of `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

__all__ = ["NAME", "Refusals"]

NAME = "ragmeter_http_refused_total"


class Refusals(Collector):
    """`counts`: by the name of a port, then by reason; written by the event loop's thread."""

    def __init__(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            NAME.removesuffix("_total"),
            "Requests and connections that a port refused, by why.",
            labels=("port", "reason"),
        )
        for port, reasons in list(self._counts.items()):
            for reason, number in list(reasons.items()):
                family.add_metric((port, reason), number)
        yield family
