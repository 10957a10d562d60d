"""Which instrument answered: the identity of a judge as 12 hex digits.

A fingerprint covers the model and `system_fingerprint` as the reply names them, the hash of the
prompt, the parameters as sent with the way the schema was given, and the version of this code.
What changes none of the answers (timeouts, output limits, prices, keys) is not in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["JUDGE_PROTOCOL", "Served", "fingerprint"]

# Raise it whenever the same prompt and reply would give another verdict than before.
JUDGE_PROTOCOL = 1

# Longer names are cut: they come from outside and end in labels and files.
NAME_CHARS = 120


def _name(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return "".join(char if char.isprintable() else "?" for char in value[:NAME_CHARS])


@dataclass(frozen=True, slots=True)
class Served:
    """Who answered, by the reply's own word: empty where it says nothing. Bounded, printable."""

    model: str = ""
    system_fingerprint: str = ""

    @classmethod
    def from_reply(cls, reply: Mapping[str, Any]) -> Served:
        return cls(_name(reply.get("model")), _name(reply.get("system_fingerprint")))


def fingerprint(served: Served, prompt_hash: str, parameters: Mapping[str, Any], mode: str) -> str:
    """12 hex digits of SHA-256 (48 bits: enough to tell thousands of instruments apart)."""
    identity = [
        JUDGE_PROTOCOL,
        served.model,
        served.system_fingerprint,
        prompt_hash,
        sorted(parameters.items()),
        mode,
    ]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]
