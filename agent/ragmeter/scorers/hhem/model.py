"""HHEM on ONNX Runtime: the support of a premise for a hypothesis, and the manifest of a model.

A pair is one text, made with the model's prompt, and is scored whole and alone: no padding, no
batch, no truncation, one thread. Callers cut long texts into windows.

`hhem.json`, the manifest, says what a model was converted from and how. A conversion writes it
last, and each graph holds its fingerprint: files of two conversions are never used together.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ragmeter.core.errors import DataError, UnusableResource, describe_fault

WEIGHTS_NAME = "model.safetensors"
MANIFEST_NAME = "hhem.json"
TOKENIZER_NAME = "tokenizer.json"
FP32_NAME = "hhem.onnx"
INT8_NAME = "hhem-int8.onnx"
SOURCE_KEY = "ragmeter.source"  # the manifest's `source` in the metadata of a graph
_GRAPH_VERSION = 1  # raise it with every change of the graph or the reading that may move a score
_MAX_MANIFEST_BYTES = 1 << 20
_CPU_INFO = Path("/proc/cpuinfo")
_EXTRA = "pip install '.[model]' in a clone of ragmeter"
# ONNX Runtime from 1.29 on sends a device id and facts of the machine to its makers, and writes
# them below HOME, unless it finds this in the environment when it is loaded.
_NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1"}
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: JSON can carry it, UTF-8 cannot


class ModelError(UnusableResource):
    """A model that cannot be read, built or used; one line says why."""


class InferenceFailed(DataError):
    """A text that the model gave no number for; one line says why, without the text."""


def split_prompt(prompt: str) -> tuple[str, str, str]:
    """Return the text before, between and after the two texts of a pair.

    Splitting once keeps a `{text2}` within a premise: users' texts are not searched.

    Raises:
        ModelError: The prompt does not hold `{text1}` and then `{text2}`, once each.
    """
    if prompt.count("{text1}") != 1 or prompt.count("{text2}") != 1:
        raise ModelError("the prompt must hold {text1} and {text2} once each")
    before, rest = prompt.split("{text1}")
    if "{text2}" not in rest:
        raise ModelError("in the prompt {text1} must come before {text2}")
    between, after = rest.split("{text2}")
    return before, between, after


def require_module(name: str) -> ModuleType:
    """Import a module of the extra `model` where it is first needed.

    Raises:
        ModelError: It cannot be imported.
    """
    os.environ.update(_NO_TELEMETRY)
    try:
        return import_module(name)
    except ImportError as error:
        raise ModelError(
            f"the local model needs the package {name.partition('.')[0]}, which cannot be imported "
            f"({error}); {_EXTRA} installs it"
        ) from None


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    Raises:
        ModelError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None


class ModelManifest(BaseModel):
    """The sources of a converted model; `shape` is for people, the graph has its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    weights_sha256: str
    tokenizer_sha256: str
    prompt: str
    shape: dict[str, int | float]
    int8: bool
    graph: int = _GRAPH_VERSION

    @property
    def source(self) -> str:
        """Everything that decides a score, but for int8, as one hexadecimal number."""
        sources = [self.weights_sha256, self.tokenizer_sha256, self.prompt, self.graph]
        sources.extend(sorted(self.shape.items()))
        return hashlib.sha256(json.dumps(sources).encode()).hexdigest()

    def fingerprint(self, int8: bool) -> str:
        """Return 12 hexadecimal digits, equal if and only if scores are comparable."""
        return hashlib.sha256(f"{self.source} {int8}".encode()).hexdigest()[:12]


def _convert_command(folder: Path, option: str = "") -> str:
    return f"`python -m training.hhem convert CHECKPOINT --out {folder}{option}`"


def _read_manifest(folder: Path) -> ModelManifest:
    path = folder / MANIFEST_NAME
    convert = _convert_command(folder)
    if not path.is_file():
        if (folder / WEIGHTS_NAME).is_file():
            raise ModelError(
                f"{folder} holds a checkpoint that is not converted: `python -m training.hhem"
                f" convert {folder}` makes a model of it"
            )
        why = f"there is no {MANIFEST_NAME}" if folder.is_dir() else "no such folder"
        raise ModelError(f"{folder} holds no converted model: {why}")
    try:
        if path.stat().st_size > _MAX_MANIFEST_BYTES:
            raise ValueError("too large")
        manifest = ModelManifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ModelError(f"{path}: {describe_fault(error)}; {convert} makes it anew") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({error}); {convert} makes it anew") from None
    if manifest.graph != _GRAPH_VERSION:
        raise ModelError(f"{folder} was converted by another version of ragmeter: {convert} again")
    split_prompt(manifest.prompt)
    return manifest


def consistency_probability(logits: tuple[float, float]) -> float:
    """Return the softmax of two logits for label 1, consistent."""
    difference = logits[0] - logits[1]
    if difference > 0:
        power = math.exp(-difference)
        return power / (1 + power)
    return 1 / (1 + math.exp(difference))


def _exact_products() -> bool:
    """Return whether this CPU's fast products of 8-bit integers are exact.

    On x86 the instructions of AVX2 and AVX-512 without VNNI add two products in 16 bits, which
    overflow. A CPU that cannot be asked is taken for one of those.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return True
    try:
        flags = _CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"\b(avx512_vnni|avx_vnni)\b", flags) is not None


def replace_surrogates(text: str) -> str:
    """Return a text that a tokenizer takes: halves of characters become U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, bounded."""
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def open_session(path: Path, skip: Sequence[str] = ()) -> Any:
    """Open a graph for one thread that does not spin.

    `skip` names optimisations of the runtime that make the graph slower.

    Raises:
        ModelError: The graph cannot be loaded.
    """
    runtime = require_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only: they are raised, too
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if not _exact_products():  # then take other kernels: slower ones, but exact
        options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return runtime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=list(skip)
        )
    except Exception as error:  # the runtime's exceptions share no base
        raise ModelError(f"{path} cannot be loaded: {first_line(error)}") from None


class HhemModel:
    """A converted model, loaded once, for one thread or several.

    Raises:
        ModelError: The folder, a file of it or a package of the extra is not right.
    """

    def __init__(self, path: Path | str, int8: bool = False) -> None:
        folder = Path(path)
        self._numpy = require_module("numpy")
        tokenizers = require_module("tokenizers")
        manifest = _read_manifest(folder)
        convert = _convert_command(folder, " --int8" if int8 else "")
        if int8 and not manifest.int8:
            raise ModelError(f"{folder} has no quantised graph; {convert} makes it")
        tokenizer = folder / TOKENIZER_NAME
        if sha256_of(tokenizer) != manifest.tokenizer_sha256:
            raise ModelError(f"{tokenizer} is not the one of the conversion: {convert}")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        graph = folder / (INT8_NAME if int8 else FP32_NAME)
        self._session = open_session(graph)
        source = self._session.get_modelmeta().custom_metadata_map.get(SOURCE_KEY)
        if source != manifest.source:
            raise ModelError(f"{graph} is not of the conversion of hhem.json: {convert}")
        self._before, self._between, self._after = split_prompt(manifest.prompt)
        self.manifest = manifest
        self.fingerprint = manifest.fingerprint(int8)

    def encode(self, premise: str, hypothesis: str) -> list[int]:
        """Return the ids of a pair in its prompt, from `<pad>` to `</s>`.

        `<pad>` and `</s>` within the texts become those tokens, as they do in the reference.
        """
        text = f"{self._before}{premise}{self._between}{hypothesis}{self._after}"
        ids: list[int] = self._tokenizer.encode(replace_surrogates(text)).ids
        return ids

    def count(self, text: str) -> int:
        """Return the number of tokens of a text by itself, without the prompt."""
        encoded = self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False)
        return len(encoded.ids)

    def logits(self, ids: list[int]) -> tuple[float, float]:
        """Return the classifier's two numbers: hallucinated, consistent.

        Raises:
            InferenceFailed: The pair cannot be scored.
        """
        feed = {"ids": self._numpy.array(ids, dtype=self._numpy.int64)}
        try:
            first, second = self._session.run(None, feed)[0].tolist()
        except Exception as error:  # the runtime's exceptions share no base
            reason = first_line(error)
            raise InferenceFailed(
                f"a pair of {len(ids)} tokens cannot be scored: {reason}"
            ) from None
        if not (math.isfinite(first) and math.isfinite(second)):
            raise InferenceFailed(f"a pair of {len(ids)} tokens gave logits that are not finite")
        return first, second

    def score(self, premise: str, hypothesis: str) -> float:
        """Return the probability that the premise supports the hypothesis."""
        return consistency_probability(self.logits(self.encode(premise, hypothesis)))
