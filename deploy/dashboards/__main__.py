"""`python -m deploy.dashboards`: writes the files; with `--check` says what is not in step."""

from __future__ import annotations

import argparse
import sys

from deploy.dashboards.files import DASHBOARDS, generated
from ragmeter.scoring.own_metrics import load_own_metrics

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    load_own_metrics()  # whoever has some gets them on the board of all metrics
    made = generated()
    stale = [
        path
        for path, text in made.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    # a dashboard that is made no more would be shown for ever
    old = [path for path in sorted(DASHBOARDS.glob("*.json")) if path not in made]
    for path in [*stale, *old]:
        sys.stdout.write(f"{path.name}{' is not in step' if check else ''}\n")
    if not check:
        DASHBOARDS.mkdir(parents=True, exist_ok=True)
        for path in stale:
            path.write_text(made[path], encoding="utf-8")
        for path in old:
            path.unlink()
    return 1 if check and (stale or old) else 0


if __name__ == "__main__":
    sys.exit(main())
