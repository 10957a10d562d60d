"""HHEM on ONNX Runtime: how far a premise supports a hypothesis, from 0 to 1.

A pair is one text, made with the model's prompt, scored whole and alone: no padding, no batch, no
truncation, one thread. Windows over long texts are made by the caller.
"""

from __future__ import annotations

import math
import platform
import re
from pathlib import Path
from typing import Any

from agent.models.checkpoint import split_prompt
from agent.models.errors import ModelError, require
from agent.models.manifest import FP32, INT8, SOURCE_KEY, TOKENIZER, read_manifest, sha256_of

__all__ = ["Hhem", "probability"]

CPU_INFO = Path("/proc/cpuinfo")
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: JSON can carry it, UTF-8 cannot


def probability(logits: tuple[float, float]) -> float:
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
        flags = CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"\b(avx512_vnni|avx_vnni)\b", flags) is not None


def _session(path: Path) -> Any:
    """A session of one thread that does not spin. Raises `ModelError`."""
    runtime = require("onnxruntime")
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


class Hhem:
    """A converted model in `path`, loaded once; use one from one thread or several.

    Raises `ModelError` where the folder, a file of it or a package of the extra is not right.
    """

    def __init__(self, path: Path | str, int8: bool = False) -> None:
        folder = Path(path)
        self._numpy = require("numpy")
        tokenizers = require("tokenizers")
        manifest = read_manifest(folder)
        convert = f"`ragmeter model convert {folder}{' --int8' if int8 else ''}`"
        if int8 and not manifest.int8:
            raise ModelError(f"{folder} has no quantised graph; {convert} makes it")
        if sha256_of(folder / TOKENIZER) != manifest.tokenizer_sha256:
            raise ModelError(f"{folder / TOKENIZER} is not the one of the conversion: {convert}")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        graph = folder / (INT8 if int8 else FP32)
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
        ids: list[int] = self._tokenizer.encode(SURROGATE.sub("\ufffd", text)).ids
        return ids

    def count(self, text: str) -> int:
        """Tokens of a text by itself, without the prompt."""
        encoded = self._tokenizer.encode(SURROGATE.sub("\ufffd", text), add_special_tokens=False)
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
        return probability(self.logits(self.encode(premise, hypothesis)))
