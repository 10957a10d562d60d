"""Write `golden.json` anew."""

from __future__ import annotations

import json

from tests.golden import GOLDEN, exported, scored

if __name__ == "__main__":
    golden = {"scored": scored(), **exported()}
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n", "utf-8")
