"""Models that score grounding on ONNX Runtime, each a folder with a manifest.

A folder holds `model.json` (the `FolderManifest`), a graph and a tokenizer. A model of the kind
`pairs` says how far one text supports another; one of the kind `tokens` says for every token of an
answer how far a window of the passages supports it, which shows what is unsupported.
docs/grounding.md has the format.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ragmeter.core.errors import describe_fault
from ragmeter.core.feedback import RESERVED_SCORERS
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.notation import adopt_notation
from ragmeter.metrics.plain_text import plain_passage
from ragmeter.scorers.hhem.model import (
    InferenceFailed,
    ModelError,
    consistency_probability,
    first_line,
    open_session,
    replace_surrogates,
    require_module,
    sha256_of,
)

MANIFEST_NAME = "model.json"
BUNDLED_FOLDER = Path(__file__).parent / "weights"
_MAX_MANIFEST_BYTES = 1 << 20
_DIGIT = re.compile(r"\d")
_GRAPH_INPUTS = frozenset(("input_ids", "attention_mask", "token_type_ids", "match_flags", "read"))
# Windows of all chunks of one answer: seconds of a core, whatever the texts.
_MAX_WINDOWS = 24
_MAX_QUERY = 600  # characters of a query that passages are compared with: one chunk as a rule
# Tokens of a passage that a query is compared with: most passages whole, for half of a row's time.
_PASSAGE_WINDOW = 224

# Kinds of tokens for a graph with `match_flags`: of the answer by how it stands in the passages, of
# the passages by whether the answer has it.
_ABSENT = 1
_PRESENT = 2
_PAIR = 3
_TRIPLE = 4
_ABSENT_NUMBER = 5
_SHARED = 6
_UNSHARED = 7


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pooling(_Strict):
    """From tokens to an answer: the mean of the `worst` risks, and the best window's own risk."""

    worst: int = Field(6, ge=1)
    tokens: float = 1.0
    window: float = 0.0
    bias: float = 0.0


class Calibration(_Strict):
    """Weights of the log odds that an answer is grounded, and their level by kind of input."""

    model: float = 1.0
    lexical: float = 0.0
    contradicted: float = 0.0  # less: of the log odds by contradictions, see `metrics.grounding`
    intercept: float = 0.0
    record: float = 0.0  # added where a passage is a record (JSON); there, evidence counts
    record_slope: float = 1.0  # as often
    several: float = 0.0  # else added where there is more than one passage
    short: float = 0.0  # else added up to `SHORT` words, less and less up to three times as many
    text_slope: float = 1.0  # of evidence where none of these holds, as in summaries


class FolderManifest(_Strict):
    """The content of `model.json`.

    Args:
        name: Name of the scorer.
        kind: `pairs` (a support for two texts) or `tokens` (a support for each token).
        sha256: Expected hashes of files by name; a file that differs is not used.
        first: Which side of a row or pair comes first.
        label: Index of the output that means supported; for one output, it is a logit of support.
        query: Most tokens of the question, which begins a row of the kind `tokens`; 0 for none.
        chunk: Most tokens of the answer in a row; a longer answer is read in chunks.
        window: Most tokens of a row.
        overlap: Tokens that two windows share.
        windows: Most windows of a chunk, those that share most words with it.
        enough: Mean support of the `pooling.worst` tokens of a chunk that support it least, from
            which no further window is read.
        span_risk: Log odds from which a token counts as unsupported.
        span_value: Value of an answer up to which its unsupported tokens are named.
        relevance: Weights of the log odds that a passage is relevant, where it is scored.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")
    kind: Literal["pairs", "tokens"]
    graph: str = "model.onnx"
    tokenizer: str = "tokenizer.json"
    sha256: dict[str, str] = {}
    begin: str = "[CLS]"
    separator: str = "[SEP]"
    first: Literal["passages", "answer"] = "passages"
    label: int = Field(1, ge=0)
    query: int = Field(0, ge=0, le=256)
    chunk: int = Field(160, ge=16)
    window: int = Field(512, ge=64)
    overlap: int = Field(64, ge=0)
    windows: int = Field(2, ge=1, le=_MAX_WINDOWS)
    enough: float = 99.0
    pooling: Pooling = Pooling()
    calibration: Calibration = Calibration()
    span_risk: float = 0.0
    span_value: float = 1.0
    relevance: Calibration | None = None


def read_manifest(folder: Path) -> FolderManifest:
    """Read the manifest of a folder.

    Raises:
        ModelError: There is none, or it is not valid.
    """
    path = folder / MANIFEST_NAME
    try:
        if path.stat().st_size > _MAX_MANIFEST_BYTES:
            raise ModelError(f"{path} is too large")
        manifest = FolderManifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValidationError as error:
        raise ModelError(f"{path}: {describe_fault(error)}") from None
    if manifest.window - manifest.query - manifest.chunk - 4 <= manifest.overlap:
        raise ModelError(f"{path}: window leaves no room for passages")
    return manifest


class _FolderModel:
    """The session and the tokenizer of a folder."""

    def __init__(self, folder: Path, manifest: FolderManifest) -> None:
        self.manifest = manifest
        self._graph = folder / manifest.graph
        self._vocabulary = folder / manifest.tokenizer
        paths = (self._graph, self._vocabulary)
        hashes = [sha256_of(path) for path in paths]
        for path, digest in zip(paths, hashes, strict=True):
            if manifest.sha256.get(path.name, digest) != digest:
                raise ModelError(f"{path} is not the file that {MANIFEST_NAME} names by its hash")
        content = "".join((*hashes, manifest.model_dump_json(exclude_none=True)))
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()[:12]
        self._session: Any = None

    def open(self) -> None:
        """Load graph and tokenizer, which takes a second; other methods do it at their first call.

        Raises:
            ModelError: They cannot be loaded, or a package of the extra is missing.
        """
        if self._session is not None:
            return
        self._numpy = require_module("numpy")
        tokenizers = require_module("tokenizers")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(self._vocabulary))
        except Exception as error:  # the tokenizers' exceptions share no base
            raise ModelError(f"{self._vocabulary} cannot be loaded: {first_line(error)}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # fused with the sum before it, a layer norm takes ten times as long
        session = open_session(self._graph, skip=("SkipLayerNormFusion",))
        self._inputs = {i.name for i in session.get_inputs()}
        if unknown := self._inputs - _GRAPH_INPUTS:
            raise ModelError(f"{self._graph} has an unknown input: {min(unknown)}")
        words = self._tokenizer.get_vocab().items()
        self._digits = {number for word, number in words if _DIGIT.search(word)}
        names = (self.manifest.begin, self.manifest.separator)
        self._begin, self._separator = map(self._special, names)
        self._session = session

    def _special(self, token: str) -> int:
        number: int | None = self._tokenizer.token_to_id(token)
        if number is None:
            raise ModelError(f"the tokenizer has no token {token[:40]!r}")
        return number

    def _ids(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        self.open()
        encoded = self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False)
        return encoded.ids, encoded.offsets

    def _run(self, row: Mapping[str, list[int]], read: Sequence[int]) -> list[Any]:
        feed = {
            name: self._numpy.array([row[name]], dtype=self._numpy.int64)
            for name in self._inputs - {"read"}
        }
        if "read" in self._inputs:
            feed["read"] = self._numpy.array(read, dtype=self._numpy.int64)
        try:
            outputs: list[Any] = self._session.run(None, feed)
        except Exception as error:  # the runtime's exceptions share no base
            length = len(row["input_ids"])
            raise InferenceFailed(
                f"a row of {length} tokens cannot be scored: {first_line(error)}"
            ) from None
        if not all(self._numpy.isfinite(output).all() for output in outputs):
            raise InferenceFailed("the model gave numbers that are not finite")
        return outputs

    def _supports(self, logits: Any) -> Any:
        """Return log odds of support from logits whose last axis may be labels."""
        if logits.shape[-1] == 1:
            return logits[..., 0]
        label = self.manifest.label
        if label >= logits.shape[-1]:
            raise ModelError(f"the model has no label {label}")
        others = self._numpy.delete(logits, label, axis=-1)
        most = others.max(axis=-1, keepdims=True)
        rest = self._numpy.log(self._numpy.exp(others - most).sum(axis=-1)) + most[..., 0]
        return logits[..., label] - rest


class PairModel(_FolderModel):
    """A model of the kind `pairs`, with the methods that `HhemTier` needs of a model.

    Raises:
        ModelError: The folder, a file of it or a package of the extra is not right.
    """

    def encode(self, premise: str, hypothesis: str) -> list[int]:
        """Return the ids of a pair, with special tokens."""
        return self._row(premise, hypothesis)["input_ids"]

    def count(self, text: str) -> int:
        """Return the number of tokens of a text by itself."""
        return len(self._ids(text)[0])

    def score(self, premise: str, hypothesis: str) -> float:
        """Return the probability that the premise supports the hypothesis.

        The premise is cut where the row would be longer than the model takes, which two windows
        that are joined for a second look may be.
        """
        row = self._row(premise, hypothesis, self.manifest.window)
        (logits, *_) = self._run(row, [0])
        calibration = self.manifest.calibration
        odds = calibration.model * float(self._supports(logits[0])) + calibration.intercept
        return consistency_probability((0.0, odds))

    def _row(self, premise: str, hypothesis: str, limit: int | None = None) -> dict[str, list[int]]:
        first, second = self._ids(premise)[0], self._ids(hypothesis)[0]
        if limit is not None:
            first = first[: max(0, limit - 3 - len(second))]
        if self.manifest.first == "answer":
            first, second = second, first
        row = [self._begin, *first, self._separator, *second, self._separator]
        types = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        return {
            "input_ids": row,
            "attention_mask": [1] * len(row),
            "token_type_ids": types,
            "match_flags": [0] * len(row),
        }


@dataclass(frozen=True, slots=True)
class TokenRisk:
    """Characters [start, end) of an answer, and the log odds that nothing supports them."""

    start: int
    end: int
    risk: float


@dataclass(slots=True)
class _Chunk:
    """A part of the answer with the rows that it is held against."""

    ids: list[int]
    flags: list[int]
    windows: list[tuple[int, int]]  # places in the passages' tokens, most promising first
    # By each window so far: support of each token, and the window's own.
    supports: list[tuple[list[float], float]] = field(default_factory=list)

    def best(self) -> list[float]:
        """Return the support of each token by the window that supports it best."""
        return [
            max(column) for column in zip(*[tokens for tokens, _ in self.supports], strict=True)
        ]


class TokenModel(_FolderModel):
    """A model of the kind `tokens`.

    Raises:
        ModelError: The folder, a file of it or a package of the extra is not right.
    """

    def read(self, query: str, passages: Sequence[str], answer: str) -> AnswerRows:
        """Tokenise the texts and plan the rows; the answer's format is left out."""
        limits = self.manifest
        passages = [plain_passage(passage) for passage in passages]
        query = adopt_notation(plain_passage(query), passages)
        question = self._ids(query)[0][: limits.query] if limits.query else []
        context = self._ids("\n\n".join(passages))[0]
        parsed = parse_answer(answer, passages, query)
        answer_ids, offsets = self._ids(parsed.plain)
        offsets = [parsed.read.place(*offset) for offset in offsets]
        flags = _match_flags(answer_ids, context, self._digits)
        count = max(1, math.ceil(len(answer_ids) / limits.chunk))
        size = math.ceil(len(answer_ids) / count)
        most = max(1, min(limits.windows, _MAX_WINDOWS // count))
        chunks = []
        for start in range(0, len(answer_ids), size or 1):
            part = answer_ids[start : start + size]
            room = limits.window - 3 - len(question) - bool(limits.query) - len(part)
            windows = cut_evenly(len(context), room, limits.overlap)
            windows = _rank_windows(windows, context, part)[:most]
            chunks.append(_Chunk(part, flags[start : start + size], windows))
        return AnswerRows(
            model=self,
            question=question,
            context=context,
            answer_ids=frozenset(answer_ids),
            offsets=offsets,
            chunks=chunks,
        )

    def support_query(self, query: str, passage: str) -> float:
        """Return the log odds that a passage supports a query, by its most promising window."""
        prepared = self.read("", [passage], query[:_MAX_QUERY])
        limits = self.manifest
        overlap = self.manifest.overlap
        room = min(max(_PASSAGE_WINDOW, overlap + 1), limits.window - limits.chunk - 4)
        windows = cut_evenly(len(prepared.context), room, overlap)
        for chunk in prepared.chunks:
            (best, *_) = _rank_windows(windows, prepared.context, chunk.ids)
            self.score_window(prepared, chunk, best)
        return -prepared.conclude()[0]

    def score_window(self, prepared: AnswerRows, chunk: _Chunk, window: tuple[int, int]) -> None:
        """Add to a chunk how a window supports each of its tokens, and the window's own support."""
        context = prepared.context[slice(*window)]
        flags = [_SHARED if token in prepared.answer_ids else _UNSHARED for token in context]
        head = [self._begin]
        if self.manifest.query:
            head += [*prepared.question, self._separator]
        answer = [*chunk.ids, self._separator]
        marks = [*chunk.flags, 0]
        if self.manifest.first == "passages":
            row = [*head, *context, self._separator, *answer]
            flags = [*[0] * len(head), *flags, 0, *marks]
            types = [0] * (len(row) - len(answer)) + [1] * len(answer)
            first = len(row) - len(answer)
        else:
            row = [*head, *answer, *context, self._separator]
            flags = [*[0] * len(head), *marks, *flags, 0]
            types = [0] * (len(head) + len(answer)) + [1] * (len(context) + 1)
            first = len(head)
        places = range(first, first + len(chunk.ids))
        outputs = self._run(
            {
                "input_ids": row,
                "attention_mask": [1] * len(row),
                "token_type_ids": types,
                "match_flags": flags,
            },
            [0, *places],
        )
        tokens = outputs[0][0]
        tokens = tokens[1:] if "read" in self._inputs else tokens[places.start : places.stop]
        if tokens.ndim == 2:
            tokens = self._supports(tokens)
        own = float(outputs[1][0]) if len(outputs) > 1 else 0.0
        chunk.supports.append((tokens.tolist(), own))


@dataclass(slots=True)
class AnswerRows:
    """The tokens of a trace, and the rows to score."""

    model: TokenModel
    question: list[int]
    context: list[int]
    answer_ids: frozenset[int]
    offsets: list[tuple[int, int]]
    chunks: list[_Chunk]

    def next_rows(self) -> list[tuple[_Chunk, tuple[int, int]]]:
        """Return each chunk that is in doubt with its next window; none once all are decided."""
        limits = self.model.manifest
        rows = []
        for chunk in self.chunks:
            done = len(chunk.supports)
            low = sorted(chunk.best())[: limits.pooling.worst] if done else []
            if done < len(chunk.windows) and (not low or sum(low) / len(low) < limits.enough):
                rows.append((chunk, chunk.windows[done]))
        return rows

    def conclude(self) -> tuple[float, list[TokenRisk]]:
        """Return the risk of the answer, in log odds, and that of each of its tokens."""
        risks = [-support for chunk in self.chunks for support in chunk.best()]
        owns = [max(own for _, own in chunk.supports) for chunk in self.chunks]
        worst = -min(owns, default=0.0)
        pooling = self.model.manifest.pooling
        top = sorted(risks, reverse=True)[: pooling.worst]
        risk = pooling.tokens * sum(top) / max(1, len(top)) + pooling.bias
        if pooling.window:
            risk += pooling.window * worst
        return risk, [
            TokenRisk(start, end, value)
            for (start, end), value in zip(self.offsets, risks, strict=True)
        ]


def cut_evenly(length: int, room: int, overlap: int) -> list[tuple[int, int]]:
    """Cut [0, length) into the fewest windows of at most `room`, all of about one size."""
    if length <= room:
        return [(0, length)]
    count = math.ceil((length - overlap) / (room - overlap))
    step = (length - overlap) / count
    starts = [round(number * step) for number in range(count)]
    return [(start, min(length, math.ceil(start + step + overlap))) for start in starts]


def _rank_windows(
    windows: list[tuple[int, int]], context: Sequence[int], part: Sequence[int]
) -> list[tuple[int, int]]:
    """Order windows by how many neighbouring tokens of the answer they hold."""
    if len(windows) == 1:
        return windows
    wanted = set(pairwise(part))

    def shared(window: tuple[int, int]) -> int:
        return len(wanted.intersection(pairwise(context[slice(*window)])))

    return sorted(windows, key=shared, reverse=True)


def _match_flags(answer_ids: Sequence[int], context: Sequence[int], digits: set[int]) -> list[int]:
    """Return for each token of the answer how it stands in the passages."""
    one = set(context)
    two = set(pairwise(context))
    three = set(zip(context, context[1:], context[2:], strict=False))
    flags = [_PRESENT if token in one else _ABSENT for token in answer_ids]
    for i, token in enumerate(answer_ids):
        if flags[i] == _ABSENT and token in digits:
            flags[i] = _ABSENT_NUMBER
    for i, pair in enumerate(pairwise(answer_ids)):
        if pair in two:
            flags[i] = max(flags[i], _PAIR)
            flags[i + 1] = max(flags[i + 1], _PAIR)
    for i, run in enumerate(zip(answer_ids, answer_ids[1:], answer_ids[2:], strict=False)):
        if run in three:
            flags[i : i + 3] = [_TRIPLE] * 3
    return flags


def missing_package() -> str:
    """Return the first package that the embedded model needs and that is not installed, or ""."""
    packages = ("numpy", "onnxruntime", "tokenizers")
    return next((name for name in packages if find_spec(name) is None), "")


def load_model(folder: Path) -> PairModel | TokenModel:
    """Read the manifest of a folder and check its files.

    Raises:
        ModelError: The folder, a file of it or a package of the extra is not right.
    """
    manifest = read_manifest(folder)
    if manifest.name in RESERVED_SCORERS and folder != BUNDLED_FOLDER:
        raise ModelError(f"{folder}: {manifest.name} is a scorer of ragmeter; choose another name")
    return (PairModel if manifest.kind == "pairs" else TokenModel)(folder, manifest)
