"""A converted HHEM model on ONNX Runtime: its manifest, its checks, and the support of a pair.

`hhem.json`: what a converted model was made from and how, written beside its graphs.

It is the last file a conversion puts in place, and its fingerprint is also inside each graph: files
of two conversions are never used together.

HHEM on ONNX Runtime: how far a premise supports a hypothesis, from 0 to 1.

A pair is one text, made with the model's prompt, scored whole and alone: no padding, no batch, no
truncation, one thread. Windows over long texts are made by the caller.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

WEIGHTS_NAME = "model.safetensors"


def split_prompt(prompt: str) -> tuple[str, str, str]:
    """What stands before, between and after the two texts. Raises `ModelError`.

    Splitting once keeps `{text2}` within a premise text: nothing is looked for in users' texts.
    """
    if prompt.count("{text1}") != 1 or prompt.count("{text2}") != 1:
        raise ModelError("the prompt must hold {text1} and {text2} once each")
    before, rest = prompt.split("{text1}")
    if "{text2}" not in rest:
        raise ModelError("in the prompt {text1} must come before {text2}")
    between, after = rest.split("{text2}")
    return before, between, after


_EXTRA = "pip install 'ragmeter[hhem]'"


class ModelError(Exception):
    """Why a model cannot be read, built or used; one line."""


def require_module(name: str) -> ModuleType:
    """A module of the extra `hhem`, imported where it is first needed. Raises `ModelError`."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ModelError(
            f"HHEM needs the package {name.partition('.')[0]}, which cannot be imported "
            f"({error}); {_EXTRA} installs it"
        ) from None


MANIFEST_NAME, FP32_NAME, INT8_NAME, TOKENIZER_NAME = (
    "hhem.json",
    "hhem.onnx",
    "hhem-int8.onnx",
    "tokenizer.json",
)
SOURCE_KEY = "ragmeter.source"  # the manifest's `source` in the metadata of a graph
_GRAPH_VERSION = 1  # raise it with every change of the graph or the reading that may move a score
_MANIFEST_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal. Raises `ModelError`."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None


@dataclass(frozen=True)
class ModelManifest:
    """The sources of a converted model. `shape` is for people; the graph has its own."""

    weights_sha256: str
    tokenizer_sha256: str
    prompt: str
    shape: dict[str, int | float]
    int8: bool
    graph: int = _GRAPH_VERSION

    @property
    def source(self) -> str:
        """Everything that decides a score, but for int8, as one hexadecimal number."""
        parts = [self.weights_sha256, self.tokenizer_sha256, self.prompt, self.graph]
        parts.extend(sorted(self.shape.items()))
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def fingerprint(self, int8: bool) -> str:
        """12 hexadecimal digits: equal where and only where scores are comparable."""
        return hashlib.sha256(f"{self.source} {int8}".encode()).hexdigest()[:12]

    def text(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


def _read_manifest(folder: Path) -> ModelManifest:
    """Read and check `hhem.json`. Raises `ModelError`, which says what to do."""
    path = folder / MANIFEST_NAME
    convert = f"`ragmeter model convert {folder}`"
    if not path.is_file():
        if (folder / WEIGHTS_NAME).is_file():
            raise ModelError(f"{folder} holds a checkpoint that is not converted: {convert}")
        raise ModelError(f"{folder} holds no converted model: there is no {MANIFEST_NAME}")
    try:
        if path.stat().st_size > _MANIFEST_BYTES:
            raise ValueError("too large")
        found = json.loads(path.read_bytes())
        manifest = ModelManifest(**found)
        kinds = {
            "weights_sha256": str,
            "tokenizer_sha256": str,
            "prompt": str,
            "shape": dict,
            "int8": bool,
            "graph": int,
        }
        if any(type(found.get(name, 0)) is not kind for name, kind in kinds.items()):
            raise ValueError("a value of the wrong kind")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read ({error}); {convert} makes it anew") from None
    if manifest.graph != _GRAPH_VERSION:
        raise ModelError(f"{folder} was converted by another version of ragmeter: {convert} again")
    split_prompt(manifest.prompt)
    return manifest


_CPU_INFO = Path("/proc/cpuinfo")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: JSON can carry it, UTF-8 cannot


def consistency_probability(logits: tuple[float, float]) -> float:
    """Softmax of two logits, label 1 (consistent)."""
    difference = logits[0] - logits[1]
    if difference > 0:
        part = math.exp(-difference)
        return part / (1 + part)
    return 1 / (1 + math.exp(difference))


def _exact_products() -> bool:
    """Whether this CPU's fast products of 8-bit integers are exact.

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


def _session(path: Path) -> Any:
    """A session of one thread that does not spin. Raises `ModelError`."""
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
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions share no base
        line = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ModelError(f"{path} cannot be loaded: {line}") from None


class HhemModel:
    """A converted model in `path`, loaded once; use one from one thread or several.

    Raises `ModelError` where the folder, a file of it or a package of the extra is not right.
    """

    def __init__(self, path: Path | str, int8: bool = False) -> None:
        folder = Path(path)
        self._numpy = require_module("numpy")
        tokenizers = require_module("tokenizers")
        manifest = _read_manifest(folder)
        convert = f"`ragmeter model convert {folder}{' --int8' if int8 else ''}`"
        if int8 and not manifest.int8:
            raise ModelError(f"{folder} has no quantised graph; {convert} makes it")
        if sha256_of(folder / TOKENIZER_NAME) != manifest.tokenizer_sha256:
            raise ModelError(
                f"{folder / TOKENIZER_NAME} is not the one of the conversion: {convert}"
            )
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER_NAME))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        graph = folder / (INT8_NAME if int8 else FP32_NAME)
        self._session = _session(graph)
        made_from = self._session.get_modelmeta().custom_metadata_map.get(SOURCE_KEY)
        if made_from != manifest.source:
            raise ModelError(f"{graph} is not of the conversion that hhem.json tells of: {convert}")
        self._before, self._between, self._after = split_prompt(manifest.prompt)
        self.manifest = manifest
        self.fingerprint = manifest.fingerprint(int8)

    def encode(self, premise: str, hypothesis: str) -> list[int]:
        """The ids of a pair in its prompt; the first is `<pad>`, the last `</s>`.

        `<pad>` and `</s>` within the texts become those tokens, as they do in the reference.
        """
        text = f"{self._before}{premise}{self._between}{hypothesis}{self._after}"
        ids: list[int] = self._tokenizer.encode(_SURROGATE.sub("\ufffd", text)).ids
        return ids

    def count(self, text: str) -> int:
        """Tokens of a text by itself, without the prompt."""
        encoded = self._tokenizer.encode(_SURROGATE.sub("\ufffd", text), add_special_tokens=False)
        return len(encoded.ids)

    def logits(self, ids: list[int]) -> tuple[float, float]:
        """The classifier's two numbers: hallucinated, consistent. Raises `ModelError`."""
        feed = {"ids": self._numpy.array(ids, dtype=self._numpy.int64)}
        try:
            first, second = self._session.run(None, feed)[0].tolist()
        except Exception as error:  # the runtime's exceptions share no base
            line = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise ModelError(f"a pair of {len(ids)} tokens cannot be scored: {line}") from None
        if not (math.isfinite(first) and math.isfinite(second)):
            raise ModelError(f"a pair of {len(ids)} tokens gave logits that are not finite")
        return first, second

    def score(self, premise: str, hypothesis: str) -> float:
        """The probability that the premise supports the hypothesis."""
        return consistency_probability(self.logits(self.encode(premise, hypothesis)))
