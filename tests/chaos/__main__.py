"""`python -m tests.chaos --home embedded|kafka`: a home under faults, compared with the truth.

The agent of the embedded home is compared with an undisturbed run, the workers of Kafka with what
the brokers hold. Exit 0 without a difference, 1 with one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from tests.chaos.embedded.plan import Plan as EmbeddedPlan
from tests.chaos.embedded.run import EmbeddedRun
from tests.chaos.kafka.plan import Plan as KafkaPlan
from tests.chaos.kafka.run import KafkaRun
from tests.chaos.run import run

HOMES: dict[str, tuple[type[Any], type[Any]]] = {
    "embedded": (EmbeddedPlan, EmbeddedRun),
    "kafka": (KafkaPlan, KafkaRun),
}


def parser_of(home: str | None) -> argparse.ArgumentParser:
    """Its options are the fields of the home's plan."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--home", choices=sorted(HOMES), required=True)
    for field in fields(HOMES[home][0]) if home in HOMES else ():
        option = f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, bool):
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(field.default), default=field.default)
    parser.add_argument("--folder", type=Path, help="kept; default: a temporary one")
    return parser


def main() -> int:
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--home")
    parser = parser_of(first.parse_known_args()[0].home)
    given = vars(parser.parse_args())
    folder = given.pop("folder")
    home = given.pop("home")
    plan_of, run_of = HOMES[home]

    def tell(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    try:
        plan = plan_of(**given)
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="chaos-") as own:
        report = run(run_of(plan, folder or Path(own), tell))
    tell(str(report))
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
