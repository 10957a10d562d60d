"""`python -m tests.chaos`: the embedded agent under faults, compared with an undisturbed run.

Exit 0 without a difference, 1 with one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.plan import Plan
from tests.chaos.run import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    usual = Plan()
    for name in Plan.__dataclass_fields__:
        value = getattr(usual, name)
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=type(value), default=value)
    parser.add_argument("--folder", type=Path, help="kept; default: a temporary one")
    given = vars(parser.parse_args())
    folder = given.pop("folder")

    def tell(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    try:
        plan = Plan(**given)
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="chaos-") as own:
        report = run(plan, folder or Path(own), tell)
    tell(str(report))
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
