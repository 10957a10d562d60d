"""Reduce a question and its answer to hashes that allow comparison without their texts.

ROUGE needs only which words are equal and in what order. So a word becomes four bytes of a BLAKE2b
hash, keyed if `privacy.content` is `hash`, and salted with the question: the same word has another
hash under another question, and frequencies reveal nothing across questions.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from hashlib import blake2b

from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.scoring import ConsistencySettings
from ragmeter.core.score import HashedWording
from ragmeter.metrics.consistency import normalise_query
from ragmeter.metrics.text import tokenize
from ragmeter.trace import Trace

# Words of an answer that are compared: more than most have, and 1.1 kB.
MAX_WORDS = 200

# Of a text that is embedded, besides `MAX_WORDS`: 200 words are some 1,300 characters and 270
# tokens, which fits models of 512; languages without spaces need a bound of their own.
_MAX_CHARS = 2000

_WORD_BYTES = 4  # two of 200 different words are taken for one with probability 5e-6
_QUERY_BYTES = 16


def wording_words(wording: str) -> list[str]:
    """Return the hashes of an answer's words in hex."""
    text = base64.b64decode(wording).hex()
    size = 2 * _WORD_BYTES
    return [text[at : at + size] for at in range(0, len(text), size)]


def is_valid_wording(wording: HashedWording) -> bool:
    """Return whether a wording has the form and size that `WordingBuilder` gives."""
    try:
        size = len(base64.b64decode(wording.words, validate=True))
        query = bytes.fromhex(wording.query)
    except (binascii.Error, ValueError):
        return False
    return (
        size % _WORD_BYTES == 0 and size <= _WORD_BYTES * MAX_WORDS and len(query) == _QUERY_BYTES
    )


def embedding_excerpt(text: str) -> str:
    """Return the part of a text to embed: as much as is compared word by word."""
    return " ".join(text.split(maxsplit=MAX_WORDS)[:MAX_WORDS])[:_MAX_CHARS]


def embeds_answers(settings: ConsistencySettings, privacy: PrivacySettings) -> bool:
    """Return whether answers are embedded."""
    # much of a text can be recovered from its embedding, so it is stored only where text may be
    configured = settings.embeddings.base_url is not None
    return settings.enabled and configured and privacy.content == "full"


def wording_mode(settings: ConsistencySettings, privacy: PrivacySettings) -> str:
    """Return by which rules wordings are made.

    Those of other rules cannot be compared, or must not be stored.
    """
    if not settings.enabled or privacy.content == "none":
        return "off"
    rules = [privacy.content, *settings.tags]
    if embeds_answers(settings, privacy):
        rules.append(f"near={settings.embeddings.near}")
    return "/".join(rules)


class WordingBuilder:
    """Makes the wordings of traces.

    Raises:
        ValueError: The key of the hashes cannot be read.
    """

    def __init__(self, settings: ConsistencySettings, privacy: PrivacySettings) -> None:
        self._tags = settings.tags
        self.enabled = wording_mode(settings, privacy) != "off"
        self._near = embeds_answers(settings, privacy) and settings.embeddings.near is not None
        # BLAKE2b takes 64 bytes of key: a longer one counts whole
        self._key = blake2b(privacy.key()).digest() if privacy.content == "hash" else b""

    def settle(
        self,
        wording: HashedWording | str | None,
        trace: Callable[[], Trace],
        wants: Callable[[str], bool],
    ) -> HashedWording | str:
        """Return the value of `of`, given that of `hash` without `wants`, if it was made."""
        if wording is None:
            return self.of(trace(), wants)
        if isinstance(wording, HashedWording):
            if not wants(wording.query):
                return "sampled_out"
            return wording if wording.words else "no_answer"
        return wording

    def of(
        self, trace: Trace, wants: Callable[[str], bool] = lambda query: True
    ) -> HashedWording | str:
        """Return the wording of a trace, or the reason why it has none.

        Args:
            trace: The trace.
            wants: Whether the answer to a question of this hash would be remembered; it spares the
                work for others.

        Returns:
            The wording, a reason as a label value, or "" if answers are not compared.
        """
        wording = self.hash(trace, wants)
        return "no_answer" if isinstance(wording, HashedWording) and not wording.words else wording

    def hash(
        self, trace: Trace, wants: Callable[[str], bool] = lambda query: True
    ) -> HashedWording | str:
        """Return the value of `of`, but a wording without words for an answer that has none.

        So `wants` can be asked later, about the wording's query.
        """
        if not self.enabled or trace.canary:
            return ""
        if not trace.query or not trace.query.strip() or "query" in trace.missing:
            return "no_query"
        if not trace.answer or "answer" in trace.missing:
            return "no_answer"
        query = self._query(trace)
        if not wants(query.hex()):
            return "sampled_out"
        words = tokenize(trace.answer)[:MAX_WORDS]
        # 16 bytes, as many as BLAKE2b takes; if near questions are found, answers to different
        # questions are compared, so their words need the same salt
        salt = self._context(trace) if self._near else query
        # a copy with key and salt already taken in: half the time
        begun = blake2b(digest_size=_WORD_BYTES, key=self._key, salt=salt)
        digests: dict[str, bytes] = {}
        for word in set(words):
            digest = begun.copy()
            digest.update(_bytes(word))
            digests[word] = digest.digest()
        text = base64.b64encode(b"".join(digests[word] for word in words)).decode("ascii")
        return HashedWording(query.hex(), text)

    def context(self, trace: Trace) -> str:
        """Return a hash, in hex, of all that must be equal besides the question."""
        return self._context(trace).hex()

    def _query(self, trace: Trace) -> bytes:
        return self._hash(normalise_query(trace.query or ""), *self._context_texts(trace))

    def _context(self, trace: Trace) -> bytes:
        return self._hash(*self._context_texts(trace))

    def _context_texts(self, trace: Trace) -> list[str]:
        """Return what an answer depends on besides the question: earlier turns and chosen tags."""
        turns = [f"{turn.role}:{turn.text}" for turn in trace.history or ()]
        return turns + [trace.tag(name) or "" for name in self._tags]

    def _hash(self, *parts: str) -> bytes:
        data = b"".join(b"%d:" % len(part) + _bytes(part) for part in parts)
        return blake2b(data, digest_size=_QUERY_BYTES, key=self._key).digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
