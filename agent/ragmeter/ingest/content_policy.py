"""Reduce scored traces to what `privacy.content` allows to be stored: texts, hashes or neither.

Ids, numbers and scores are always stored. A hash is keyed (BLAKE2b): it tells whether two texts are
the same, and nobody without the key learns more by trying texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ragmeter.config.inputs import PrivacySettings
from ragmeter.core.score import ScoredTrace

_TEXTS = ("query", "answer", "error")
# Details of scores whose words are ragmeter's own. All other text in details is quoted.
_OWN_DETAILS = frozenset(
    (
        "passage_id",
        "reason",
        "importance",
        "attempt",
        "support",
        "second",
        "differ",
        "missing",
        "server",
    )
)


class ContentPolicy:
    """Removes content that may not be stored.

    Raises:
        ValueError: The key of the hashes cannot be read.
    """

    def __init__(self, settings: PrivacySettings | None = None) -> None:
        settings = settings or PrivacySettings()
        self.mode = settings.content
        # BLAKE2b takes 64 bytes of key, so that a longer key is hashed first
        self._key = hashlib.blake2b(settings.key()).digest() if self.mode == "hash" else b""

    @property
    def full(self) -> bool:
        """Whether all content may be stored."""
        return self.mode == "full"

    def text(self, text: str | None) -> dict[str, Any] | None:
        """Return what is stored instead of a text: its length, and its hash if allowed."""
        if text is None:
            return None
        return {"characters": len(text), **self._hash(text.encode("utf-8", "surrogatepass"))}

    def raw(self, raw: bytes) -> dict[str, Any]:
        """Return what is stored instead of bytes that could not be decoded."""
        return {"bytes": len(raw), **self._hash(raw)}

    def document(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return what is stored of `{"trace": …, "results": …}`, which may be reduced already."""
        if self.full:
            return document
        trace = dict(document["trace"])
        texts = dict(trace.get("not_kept") or {})
        for name in _TEXTS:
            if isinstance(trace.get(name), str):
                texts[name] = self.text(trace[name])
                trace[name] = None
        if trace.get("history"):
            texts["history"] = [self.text(turn.get("text")) for turn in trace["history"]]
            trace["history"] = []
        if trace.get("reference"):
            trace["reference"] = None
        if trace.get("passages"):
            trace["passages"] = [self._passage(passage) for passage in trace["passages"]]
        if trace.get("citations"):  # their sources may quote
            trace["citations"] = [
                {name: item for name, item in one.items() if name != "sources"}
                for one in trace["citations"]
            ]
        trace |= {"tags": {}, "not_kept": texts, "content": self.mode}
        return {**document, "trace": trace, "results": self.results(document["results"])}

    def results(self, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return scores in their public form, without quotes in their details."""
        if self.full:
            return list(results)
        return [
            {**item, "detail": self._detail(item["detail"], "")} if "detail" in item else item
            for item in results
        ]

    def scored(self, trace: ScoredTrace) -> ScoredTrace:
        """Return the trace without quotes in the details of its scores."""
        if self.full:
            return trace
        scores = [
            replace(score, detail=self._detail(score.detail, "")) if score.detail else score
            for score in trace.results
        ]
        return trace._replace(results=scores)

    def changed(self, before: str) -> bool:
        """Return whether content stored under the mode `before` must be removed."""
        order = ("none", "hash", "full")
        return before not in order or order.index(self.mode) < order.index(before)

    def _hash(self, data: bytes) -> dict[str, str]:
        if self.mode != "hash":
            return {}
        return {"blake2b": hashlib.blake2b(data, digest_size=16, key=self._key).hexdigest()}

    def _passage(self, passage: dict[str, Any]) -> dict[str, Any]:
        reduced = {**passage, "text": None}
        # a hash without a key reveals a short text
        for name in ("metadata", "text_sha256"):
            reduced.pop(name, None)
        if isinstance(passage.get("text"), str):
            reduced["not_kept"] = self.text(passage["text"])
        return reduced

    def _detail(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            if set(value) <= {"characters", "blake2b"}:  # reduced already
                return value
            own = name in _OWN_DETAILS
            return {key: self._detail(item, name if own else key) for key, item in value.items()}
        if isinstance(value, list):
            return [self._detail(item, name) for item in value]
        return self.text(value) if isinstance(value, str) and name not in _OWN_DETAILS else value
