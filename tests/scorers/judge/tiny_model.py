"""A tiny random language model in a GGUF file, made anew by the tests that need one.

One Llama layer of 32 dimensions with random weights, a SentencePiece vocabulary of the bytes and
the printable ASCII characters (so a character is about a token) and a chat template that writes
each message on a line. What it says is noise: it is there so that a real server has something to
serve. The file is GGUF version 3, little-endian; tensors are float32.
"""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path

__all__ = ["write"]

CHARACTERS = 95  # of printable ASCII: the last tokens of the vocabulary
DIM = 32  # the least that llama.cpp's kernels take without padding
ALIGNMENT = 32  # GGUF's default for the start of the data and of each tensor
SPREAD = 0.3  # standard deviation of a weight: enough for the answers to depend on the prompt

UNKNOWN = 2
CONTROL = 3
NORMAL = 1
BYTE = 6  # token types of GGUF
UINT32 = 4
INT32 = 5
FLOAT32 = 6
STRING = 8
ARRAY = 9  # value types of GGUF

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def write(path: Path, context: int = 32_768, seed: int = 3) -> None:
    """Write the model to `path`; `context` is the longest it says it was trained for."""
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    tokens += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    tokens += [(chr(code), NORMAL) for code in range(33, 127)] + [("\u2581", NORMAL)]
    values = _values(tokens, context)
    tensors = _tensors(len(tokens))
    rng = random.Random(seed)
    data = [_weights(name, shape, rng) for name, shape in tensors]
    starts = accumulate((len(piece) for piece in data), initial=0)
    infos = [
        _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, start)  # 0: float32
        for (name, shape), (start, _) in zip(tensors, pairwise(starts), strict=True)
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    path.write_bytes(_padded(head + b"".join(values) + b"".join(infos)) + b"".join(data))


def _values(tokens: Sequence[tuple[str, int]], context: int) -> list[bytes]:
    llama = {
        "context_length": context,
        "embedding_length": DIM,
        "block_count": 1,
        "feed_forward_length": DIM,
        "attention.head_count": 1,
        "attention.head_count_kv": 1,
        "rope.dimension_count": DIM,
        "vocab_size": len(tokens),
    }
    special = {"unknown_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return [
        _string("general.architecture", "llama"),
        _string("general.name", "tiny-random"),
        *(_number(f"llama.{name}", number) for name, number in llama.items()),
        _text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", FLOAT32, 1e-5),
        _string("tokenizer.ggml.model", "llama"),
        _array("tokenizer.ggml.tokens", STRING, [_text(token) for token, _ in tokens]),
        _array(
            "tokenizer.ggml.scores",
            FLOAT32,
            [struct.pack("<f", -float(rank)) for rank in range(len(tokens))],
        ),
        _array("tokenizer.ggml.token_type", INT32, [struct.pack("<i", kind) for _, kind in tokens]),
        *(_number(f"tokenizer.ggml.{name}", number) for name, number in special.items()),
        _string("tokenizer.chat_template", TEMPLATE),
    ]


def _tensors(vocabulary: int) -> list[tuple[str, tuple[int, ...]]]:
    square = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    return [
        ("token_embd.weight", (DIM, vocabulary)),
        ("output_norm.weight", (DIM,)),
        ("output.weight", (DIM, vocabulary)),
        ("blk.0.attn_norm.weight", (DIM,)),
        ("blk.0.ffn_norm.weight", (DIM,)),
        *((f"blk.0.{name}.weight", (DIM, DIM)) for name in square),
    ]


def _weights(name: str, shape: tuple[int, ...], rng: random.Random) -> bytes:
    norm = name.endswith("norm.weight")
    numbers = [1.0 if norm else rng.gauss(0, SPREAD) for _ in range(prod(shape))]
    if name == "output.weight":
        # A raw byte is never likely: bytes at random are no UTF-8, and llama.cpp answers 500 then.
        bytes_ = DIM * (shape[1] - CHARACTERS)
        numbers[:bytes_] = [0.0] * bytes_
    return _padded(array("f", numbers).tobytes())


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _string(key: str, value: str) -> bytes:
    return _text(key) + struct.pack("<I", STRING) + _text(value)


def _number(key: str, value: int) -> bytes:
    return _text(key) + struct.pack("<II", UINT32, value)


def _array(key: str, kind: int, items: Sequence[bytes]) -> bytes:
    return _text(key) + struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(items)
