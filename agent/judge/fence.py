"""Text that others wrote, made fit to stand in a prompt: cleaned, and fenced as data.

Every block of a prompt stands between two lines that carry one code. The code is a hash of all
the blocks, so that equal data gives an equal prompt (a cache needs that), and no block contains
it: what is inside cannot close its fence. Cleaning takes away what no reader sees and what a
server would read as more than text: control and format characters, and the marks by which chat
templates tell roles apart, which local servers take for real wherever they stand.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

__all__ = ["CODE", "clean", "fence"]

CODE = re.compile(r"\[\[(BEGIN|END) ([a-z]+(?: \d+)?) ([0-9a-f]{16})\]\]")
"""A line of a fence."""

# Control and format characters, surrogates, private use and tag characters: not seen by people,
# yet read by models. Kept: tab, line break, and the joiners U+200C and U+200D, which change words.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff\ue000-\uf8ff"
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
_ASCII_UNSEEN = bytes(n for n in range(128) if _UNSEEN.match(chr(n)))
# Tokens with a role in the chat templates of Llama, Mistral, Qwen, Gemma, Phi, DeepSeek and their
# kin, and our own fence. A space after the first sign leaves them readable and mere text.
# Each alternative begins with a plain sign: the engine then looks for these signs alone.
_MARKS = re.compile(
    r"<(?=[|｜]|(?i:/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|start_of_image)>|</?SYS>>))"
    r"|\|(?=>)"
    r"|｜(?=>)"
    r"|\[(?=(?i:/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|IMG)\]"
    r"|\[\s*(?:BEGIN|END)\b))"
)


def clean(text: str) -> str:
    """The text as people see it, and nothing in it that a server takes for more than text."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():  # on bytes in C, many times quicker: cleaning is most of a prompt's work
        text = text.encode().translate(None, _ASCII_UNSEEN).decode()
    else:
        for line_break in "\x85\u2028\u2029":
            text = text.replace(line_break, "\n")
        text = _UNSEEN.sub("", text)
    return _MARKS.sub(lambda found: f"{found.group()} ", text)


def fence(blocks: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """The code, and each (label, text) as lines of a fence with the cleaned text in between.

    Labels are ours: small letters, and perhaps a number. A function of its input.
    """
    cleaned = [(label, clean(text)) for label, text in blocks]
    whole = "\0".join(part for block in cleaned for part in block)
    code, folded, number = "", whole.casefold(), 0
    while not code or code in folded:
        code = hashlib.sha256(f"{number}\0{whole}".encode()).hexdigest()[:16]
        number += 1
    return code, [
        f"[[BEGIN {label} {code}]]\n{text}\n[[END {label} {code}]]" for label, text in cleaned
    ]
