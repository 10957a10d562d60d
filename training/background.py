"""Makes `background.json` of `ragmeter.metrics`: the rarity of word stems in openly licensed texts.

    python -m training.background --data DIR

Only document counts of stems are kept, no text. Sources: MTRAG and MTRAG-UN passages
(Apache-2.0), ExpertQA evidence (MIT), DelucionQA and XSTest answers, BEGIN evidence (CC BY 4.0).
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
from pathlib import Path

from ragmeter.metrics.stems import content_stems
from ragmeter.metrics.words import tokenize

__all__ = ["main"]

TARGET = (
    Path(__file__).resolve().parent.parent / "agent" / "ragmeter" / "metrics" / "background.json"
)
PASSAGES = (
    "abstention_mtrag_un",
    "grounding_mtrag_human",
    "citation_expertqa",
    "grounding_begin",
)
ANSWERS = ("abstention_delucionqa", "abstention_xstest_safe")
LEAST = 3  # documents; rarer stems are names and typing errors, and would fill the table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    folder: Path = parser.parse_args().data
    documents: set[str] = set()
    for name in PASSAGES + ANSWERS:
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if name in PASSAGES:
                    documents.update(p["text"] for p in row["passages"] if p["text"])
                else:
                    documents.add(row["answer"])
    counts: collections.Counter[str] = collections.Counter()
    for text in documents:
        counts.update({s for s in content_stems(tokenize(text)) if not s[0].isdigit()})
    levels: dict[int, list[str]] = collections.defaultdict(list)
    for word, count in counts.items():
        if count >= LEAST and word.isascii():
            # about three significant bits: the table stays small, the logarithm hardly moves
            step = max(1, count // 8)
            levels[count // step * step].append(word)
    table = {
        "about": "document frequencies of word stems; made by training/background.py",
        "documents": len(documents),
        "stems": {str(df): " ".join(sorted(levels[df])) for df in sorted(levels)},
    }
    TARGET.write_text(json.dumps(table, indent=0) + "\n", encoding="utf-8")
    print(f"{TARGET.name}: {len(documents)} documents, {sum(map(len, levels.values()))} stems")


if __name__ == "__main__":
    main()
