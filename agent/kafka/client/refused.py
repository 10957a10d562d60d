"""A batch that a broker refuses as too large leaves no hole in the numbers of a producer.

An idempotent producer numbers its records by partition, and brokers take no number but the next.
aiokafka numbers a batch when it goes out and does not take that back when the broker has refused
it: whatever is sent to the partition afterwards is "out of order", and the producer of no more use.
A worker would end at the record behind each one that is too large, again and again.

Size is checked before anything is stored or any number is used, and no other batch of the partition
is under way meanwhile, so the numbers can be given again.
"""

from __future__ import annotations

from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.producer import sender

__all__ = ["NumbersAgain"]

_Plain: Any = sender.SendProduceReqHandler


class NumbersAgain(_Plain):  # type: ignore[misc]
    """Instead of aiokafka's handler of one request, for it has no hook."""

    def handle_response(self, response: Any) -> None:
        numbers = self._sender._txn_manager
        for topic, partitions in response.topics:
            for partition, code, *_ in partitions:
                batch = self._batches.get(TopicPartition(topic, partition))
                if code == MessageSizeTooLargeError.errno and batch and numbers is not None:
                    numbers.increment_sequence_number(batch.tp, -batch.record_count)
        super().handle_response(response)
