"""Suites and services for tests of canaries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
from ragmeter.canaries.suite import CanarySuite

__all__ = ["replying", "suite"]

Respond = Callable[[httpx.Request], httpx.Response]


def suite(*questions: dict[str, Any], **changes: Any) -> CanarySuite:
    """With one question by default."""
    one = {"id": "a", "query": "How long?", "reference": {"checks": [{"patterns": ["14 days"]}]}}
    tree = {"service": "bot", "questions": list(questions) or [one], **changes}
    return CanarySuite.model_validate(tree)


def replying(document: Any, status: int = 200, **headers: str) -> httpx.MockTransport:
    """The same reply to everybody."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    kind = {"content-type": "application/json", **headers}
    return httpx.MockTransport(lambda _: httpx.Response(status, content=body, headers=kind))
