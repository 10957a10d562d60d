"""What the records of all our topics have in common: versions, types, and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from ragmeter.core.errors import DataError, UnknownVersion
from ragmeter.ingest.native import DecodeFailure

READ_BYTES = 2**20
_MAX_ERROR_TEXT = 200

T = TypeVar("T")


class BadRecord(DataError, ValueError):
    """Data that is no record of ours; `failure` says why."""

    def __init__(self, failure: DecodeFailure) -> None:
        super().__init__(f"{failure.reason}: {failure.errors[0]}"[:_MAX_ERROR_TEXT])
        self.failure = failure

    @classmethod
    def of(cls, why: str, reason: str = "invalid_record") -> BadRecord:
        """Return the error of a record as a whole."""
        return cls(DecodeFailure.of_whole(reason, why[:_MAX_ERROR_TEXT], b""))


class RecordTooLarge(BadRecord):
    """A record larger than its topic or the state takes."""


_MAX_NAME = 128  # characters of a metric, a scorer or a reason: they become labels
Name = Annotated[str, Field(min_length=1, max_length=_MAX_NAME)]
EventTime = Annotated[float, Field(ge=0, lt=7.3e9)]  # up to the year 2201, as for traces


@dataclass
class _Version:
    v: int


_VERSION = TypeAdapter(_Version)


def refuse_other_version(data: bytes, version: int, what: str, remedy: str = "") -> None:
    """Raise `UnknownVersion` for JSON whose field `v` is another version; pass anything else."""
    try:
        found = _VERSION.validate_json(data, strict=True).v
    except ValidationError:
        return
    if found != version:
        raise UnknownVersion(
            f"{what} of format version {found}; this program reads version {version}"
            f"{remedy and f': {remedy}'}"
        )


def read_wire(wire: TypeAdapter[T], data: bytes, *, strict: bool = True) -> T:
    """Return JSON as a type of the wire; raise `BadRecord` for what does not fit it."""
    try:
        return wire.validate_json(data, strict=strict)
    except ValidationError as error:
        raise BadRecord(DecodeFailure.of_validation("invalid_record", error, data)) from None
