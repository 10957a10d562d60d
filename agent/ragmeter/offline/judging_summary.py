"""What the commands print of how traces were judged."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

from ragmeter.core.judging import MARK, USD_DIGITS, JudgeInstrument, JudgeUse, TraceJudging


class JudgingSummary:
    """The judging of a run's traces, summed up: each instrument with its number of traces."""

    def __init__(self) -> None:
        self.traces = 0
        self.uses: dict[str, JudgeUse] = {}
        self.compared: dict[str, list[int]] = {}
        self.instruments: dict[str, tuple[JudgeInstrument, int]] = {}
        self._spans: list[tuple[float, float]] = []

    def add(self, judging: TraceJudging | None) -> None:
        """Add a trace; None: it was not judged, or its file does not say how."""
        if judging is None:
            return
        self.traces += 1
        self._spans.append((judging.began, judging.began + judging.seconds))
        self.add_uses(judging.uses)
        for kind, (number, differ) in judging.compared.items():
            before = self.compared.get(kind, [0, 0])
            self.compared[kind] = [before[0] + number, before[1] + differ]
        for one in judging.instruments:
            own = replace(one, fingerprints={})
            known, traces = self.instruments.get(one.key, (own, 0))
            known.fingerprints.update(one.fingerprints)
            self.instruments[one.key] = known, traces + 1

    def add_uses(self, uses: Mapping[str, JudgeUse]) -> None:
        """Add uses of judges by name."""
        for name, use in uses.items():
            self.uses.setdefault(name, JudgeUse()).add(use)

    def model(self, fingerprint: str) -> str:
        """Return the name of the model behind a fingerprint, of all if several answered."""
        known = [one for one, _ in self.instruments.values() if fingerprint in one.fingerprints]
        return " + ".join(dict.fromkeys(one.served or one.model for one in known))

    @property
    def seconds(self) -> float:
        """The time in which any trace was under way; pauses between runs are left out."""
        total = 0.0
        end = -math.inf
        for began, ended in sorted(self._spans):
            total += max(0.0, ended - max(began, end))
            end = max(end, ended)
        return total

    def lines(self, shown: Collection[str] = ()) -> list[str]:
        """Return lines for people: what the judges cost, their instruments, second opinions.

        Args:
            shown: Fingerprints to name, each by its first digits behind its prompts.
        """
        lines = [f"{name}: {_describe_use(use)}" for name, use in sorted(self.uses.items())]
        for one, traces in self.instruments.values():
            prompts = dict.fromkeys(
                " + ".join(names) + (f" @{fingerprint[:MARK]}" if shown else "")
                for fingerprint, names in one.fingerprints.items()
                if fingerprint in shown or not (shown or len(names) > 1)
            )
            lines.append(f"{one.judge}: {one.title}: {traces:,} traces, {', '.join(prompts)}")
        if self.traces:
            lines.append(f"judged {self.traces:,} traces in {self.seconds:,.1f} s")
        if self.compared:
            number, differ = map(sum, zip(*self.compared.values(), strict=True))
            kinds = ", ".join(f"{kind} {d:,} of {n:,}" for kind, (n, d) in self.compared.items())
            share = f"{100 * differ / max(1, number):.1f} %"
            lines.append(
                f"second opinion: {differ:,} of {number:,} verdicts differ ({share}): {kinds}"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "traces": self.traces,
            "seconds": round(self.seconds, 3),
            "judges": {
                name: {
                    **{key: value for key, value in asdict(use).items() if key != "latencies"},
                    "usd": round(use.usd, USD_DIGITS),
                    "latency": {"p50": use.latency(0.5), "p95": use.latency(0.95)},
                }
                for name, use in sorted(self.uses.items())
            },
            "instruments": [
                {**asdict(one), "traces": traces} for one, traces in self.instruments.values()
            ],
            "compared": self.compared,
        }


def _describe_use(use: JudgeUse) -> str:
    estimated = f" (estimated for {use.estimated:,} calls)" if use.estimated else ""
    text = (
        f"{use.calls:,} calls, {use.cached:,} answers without a call, {use.input_tokens:,} tokens"
        f" in, {use.output_tokens:,} out{estimated}, {use.usd:,.4f} USD"
    )
    p50 = use.latency(0.5)
    p95 = use.latency(0.95)
    return text if p50 is None else f"{text}, latency p50 {p50:.3g} s, p95 {p95:.3g} s"
