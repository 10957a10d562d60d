"""A redaction rule at work: what it finds in a text, within a bounded time or not at all.

Python's `re` cannot be stopped, and a text from outside may make an innocent pattern run for
hours. `regex` stops when its time is over; then the text counts as not redacted, which whoever asks
must take for "not to be kept". It is imported with the first rule: without one it costs nothing.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.privacy.builtin import BUILTIN, Check, Part

if TYPE_CHECKING:
    import regex

__all__ = ["Rule", "Unredacted", "compiled"]

# A pattern is unrolled when it is compiled: a{1000} in a{1000} takes a second, one more a gigabyte.
MAX_UNROLLED = 100_000
STRIKES = 3  # searches that ran out of time before a rule is left alone
REST_SECONDS = 30.0  # for so long; what it applies to is not kept meanwhile
LONG = 4_000  # characters from which on other threads may run during a search (it costs 4 us)

# What matters for that: escapes and sets (to be skipped), groups and counted repeats.
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|([()])|\{(\d*),?(\d*)\}", re.DOTALL)


class Unredacted(Exception):
    """A rule could not be applied to a text: `timeout`, `resting` after several, or `error`."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"{rule}: {reason}")
        self.rule = rule
        self.reason = reason


def _unrolled(pattern: str) -> int:
    """The largest product of counted repeats within one another."""
    most = [1]  # of what is open, by depth
    last = 1  # of the piece before
    for match in _PIECE.finditer(pattern):
        bracket, low, high = match.groups()
        if bracket == "(":
            most.append(1)
            last = 1
        elif bracket == ")":
            last = most.pop() if len(most) > 1 else 1
            most[-1] = max(most[-1], last)
        elif low or high:
            counted = last * max(int(count or 1) for count in (low[:9], high[:9]))
            most[-1] = max(most[-1], counted)
            last = 1
        else:
            last = 1
    return max(most)


def compiled(
    pattern: str, *, any_case: bool = False, most: int = MAX_UNROLLED
) -> regex.Pattern[str]:
    """ValueError where the pattern is none, is too large, or matches the empty text. `most`
    bounds its unrolled repeats, and so the time that this takes."""
    import regex

    if _unrolled(pattern) > most:
        raise ValueError(f"its repeats multiply to over {most}")
    try:
        found = regex.compile(pattern, regex.IGNORECASE if any_case else 0)
        empty = found.search("", timeout=1.0)
    except (regex.error, OverflowError, RecursionError, TimeoutError) as error:
        raise ValueError(f"no pattern: {error}") from None
    if empty is not None:
        raise ValueError("it matches the empty text, so everywhere")
    return found


class Rule:
    """Finds what is to be replaced. Safe from any thread. Raises ValueError for a bad pattern."""

    def __init__(
        self,
        name: str,
        pattern: str | None,
        replacement: str | None,
        timeout: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        ready = BUILTIN[name] if pattern is None else None
        self.name = name
        self.replacement = f"[{name}]" if replacement is None else replacement
        parts = ready.parts if ready else (Part(pattern or ""),)
        self._parts = [(compiled(part.pattern), part.hints) for part in parts]
        self._check: Check | None = ready.check if ready else None
        self._back = ready.back if ready else 0
        self._timeout = timeout
        self._monotonic = monotonic
        self._strikes = 0
        self._rests_until = -math.inf

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where it matches, in order and apart. Raises `Unredacted`."""
        start = self._monotonic()
        if start < self._rests_until:
            raise Unredacted(self.name, "resting")
        try:
            found = self._all(text, start + self._timeout)
        except TimeoutError:
            self._strikes += 1
            if self._strikes >= STRIKES:
                self._rests_until = self._monotonic() + REST_SECONDS
                self._strikes = STRIKES - 1  # then one more is enough
            raise Unredacted(self.name, "timeout") from None
        except Exception:
            raise Unredacted(self.name, "error") from None
        self._strikes = 0
        return found

    def _all(self, text: str, deadline: float) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        lower = text.lower() if len(self._parts) > 1 or self._parts[0][1] else ""
        for pattern, hints in self._parts:
            if not hints or any(hint in lower for hint in hints):
                found += self._search(pattern, text, deadline)
        if len(self._parts) == 1 or len(found) < 2:
            return found
        found.sort()
        joined = [found[0]]
        for start, end in found[1:]:
            if start < joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        return joined

    def _search(
        self, pattern: regex.Pattern[str], text: str, deadline: float
    ) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        at, size, check = 0, len(text), self._check
        shared = size > LONG
        left = deadline - self._monotonic()
        while at < size:
            if left <= 0:
                raise TimeoutError
            match = pattern.search(text, at, timeout=left, concurrent=shared)
            if match is None:
                break
            start, end = match.span()
            start -= self._back
            stop = end if check is None else check(text, start, end)
            if stop is None or stop <= start:
                at = match.start() + 1
            else:
                found.append((start, stop))
                at = stop
            left = deadline - self._monotonic()
        return found
