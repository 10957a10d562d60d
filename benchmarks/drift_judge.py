"""A judge that changes, answers that get worse, sampling that moves: what the monitor says when.

`python -m benchmarks.drift_judge [--runs N]`: two traces a second, 24 or so judged in five minutes,
baseline of six hours, change after ten. Prints Markdown.
"""

from __future__ import annotations

import argparse
import statistics

from ragmeter.parts.drift.alarms import Alarm

from tests.parts.drift.test_judge_drift import CHANGE, play

__all__ = ["main"]

CASES: dict[str, dict[str, object]] = {
    "the judge calls 10 % of good answers bad": {"wrong": 0.1},
    "the judge calls 17 % of good answers bad": {"wrong": 0.17},
    "bad answers from 10 to 16 %": {"bad": 0.16},
    "bad answers from 10 to 25 %": {"bad": 0.25},
    "low stratum judged five times as often": {"rates": {"low": 0.5, "rest": 0.02}},
    "low stratum judged a fifth as often": {"rates": {"low": 0.02, "rest": 0.02}},
}


def _first(said: list[Alarm], scorer: str, kind: str) -> float | None:
    for alarm in said:
        if (alarm.state, alarm.scorer, alarm.kind) == ("firing", scorer, kind):
            return alarm.at / 60 - CHANGE
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=8)
    runs = parser.parse_args().runs
    series = (("builtin", "mean"), ("judge", "mean"), ("judge", "judge"))
    print("| | cheap score raised | judged score raised | judge drift raised |")
    print("| --- | ---: | ---: | ---: |")
    for name, case in CASES.items():
        found: dict[tuple[str, str], list[float]] = {key: [] for key in series}
        for seed in range(runs):
            said = play(720, 50 + seed, **case)
            for key in series:
                at = _first(said, *key)
                if at is not None:
                    found[key].append(at)
        cells = [
            f"{len(v)} of {runs}, {statistics.median(v):.0f} min" if v else f"0 of {runs}"
            for v in found.values()
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
