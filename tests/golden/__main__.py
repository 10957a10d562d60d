"""Write `golden.json` and `texts.json` anew."""

from __future__ import annotations

import json

from tests.golden import GOLDEN, exported, scored
from tests.golden.texts import TEXTS, text_hashes

if __name__ == "__main__":
    golden = {"scored": scored(), **exported()}
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n", "utf-8")
    TEXTS.write_text(json.dumps(text_hashes(), indent=1) + "\n", "utf-8")
