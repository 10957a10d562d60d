"""Reduce scored traces to what `privacy.content` allows to be kept: texts, hashes or neither.

Ids, numbers and scores are always kept. A hash is keyed (BLAKE2b): it tells whether two texts are
the same, and whoever lacks the key learns nothing more by trying texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ragmeter.config.privacy import PrivacySettings
from ragmeter.core.score import ScoredTrace

_TEXTS = ("query", "answer", "error")
# What the details of scores say in words of our own. All other text there is quoted.
_OURS = frozenset(
    ("passage_id", "reason", "importance", "attempt", "support", "second", "differ", "missing")
)


class ContentPolicy:
    """What `privacy.content` allows. Raises ValueError where the key cannot be read."""

    def __init__(self, settings: PrivacySettings | None = None) -> None:
        settings = settings or PrivacySettings()
        self.mode = settings.content
        # BLAKE2b takes 64 bytes of key: a longer one counts whole
        self._key = hashlib.blake2b(settings.key()).digest() if self.mode == "hash" else b""

    @property
    def full(self) -> bool:
        return self.mode == "full"

    def _hash(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=16, key=self._key).hexdigest()

    def text(self, text: str | None) -> dict[str, Any] | None:
        """What is kept in the place of a text."""
        if text is None:
            return None
        kept: dict[str, Any] = {"characters": len(text)}
        if self.mode == "hash":
            kept["blake2b"] = self._hash(text)
        return kept

    def raw(self, raw: bytes) -> dict[str, Any]:
        """The same for bytes that could not be read."""
        kept: dict[str, Any] = {"bytes": len(raw)}
        if self.mode == "hash":
            kept["blake2b"] = hashlib.blake2b(raw, digest_size=16, key=self._key).hexdigest()
        return kept

    def document(self, document: dict[str, Any]) -> dict[str, Any]:
        """What is kept of `{"trace": …, "results": …}`; of what was kept so before, all of it."""
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
            trace["passages"] = [self._passage(one) for one in trace["passages"]]
        trace["tags"] = {}
        trace["not_kept"] = texts
        trace["content"] = self.mode
        return {**document, "trace": trace, "results": self.results(document["results"])}

    def _passage(self, passage: dict[str, Any]) -> dict[str, Any]:
        kept = {**passage, "text": None}
        for name in ("metadata", "text_sha256"):  # a hash without a key is as good as a short text
            kept.pop(name, None)
        if isinstance(passage.get("text"), str):
            kept["not_kept"] = self.text(passage["text"])
        return kept

    def results(self, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Scores in their public form, without what their details quote."""
        if self.full:
            return list(results)
        return [
            {**item, "detail": self._detail(item["detail"], "")} if "detail" in item else item
            for item in results
        ]

    def scored(self, trace: ScoredTrace) -> ScoredTrace:
        """Return the trace, its scores without what their details quote."""
        if self.full:
            return trace
        scores = [
            replace(score, detail=self._detail(score.detail, "")) if score.detail else score
            for score in trace.results
        ]
        return replace(trace, results=scores)

    def _detail(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            if set(value) <= {"characters", "blake2b"}:
                return value
            return {key: self._detail(item, name if name in _OURS else key)
                    for key, item in value.items()}  # fmt: skip
        if isinstance(value, list):
            return [self._detail(item, name) for item in value]
        return self.text(value) if isinstance(value, str) and name not in _OURS else value

    def changed(self, before: str) -> bool:
        """Whether what was kept under the mode `before` must not be kept any longer."""
        order = ("none", "hash", "full")
        return before not in order or order.index(self.mode) < order.index(before)
