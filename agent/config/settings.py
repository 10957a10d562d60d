"""The root of the settings tree, with limits and the state file.

`ragmeter.config.loader` reads them from a file and the environment. The configuration reference is made of
these descriptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import (
    Field,
    field_validator,
)

from ragmeter.config.base import NameList, SettingsSection, check_distinct
from ragmeter.config.inputs import (
    FeedbackSettings,
    HttpSettings,
    OtlpSettings,
    ResolverSettings,
)
from ragmeter.config.kafka import KafkaSettings
from ragmeter.config.privacy import PrivacySettings
from ragmeter.config.reporting import (
    AlertSettings,
    DriftDetectionSettings,
    ResultsExportSettings,
    SloSettings,
)
from ragmeter.config.scoring import (
    ConsistencySettings,
    HhemSettings,
    JudgeSettings,
    SamplingSettings,
)
from ragmeter.core.clocks import bucket_seconds, parse_window


class StateSettings(SettingsSection):
    path: Path = Field(
        Path(".ragmeter/state.sqlite"), description="SQLite file of queue, windows and progress"
    )
    dead_letters: Path = Field(
        Path(".ragmeter/dead-letters.jsonl"), description="file for what could not be read"
    )
    synchronous: Literal["full", "normal"] = Field(
        "full",
        description="`full` survives a power cut; `normal` survives a killed process only",
    )


class LimitSettings(SettingsSection):
    body_bytes: int = Field(
        20 * 2**20, ge=1024, description="largest request body, also after decompression"
    )
    trace_bytes: int = Field(2 * 2**20, ge=1024, description="largest single trace")
    connections: int = Field(
        400, ge=8, description="open connections of a port; beyond it the idlest one is closed"
    )
    queue: int = Field(10_000, ge=1, description="traces waiting before HTTP answers 429")
    drawn: int = Field(
        5_000,
        ge=1,
        description="traces waiting for a judge, a model or an embedding; beyond it they are shed",
    )
    services: int = Field(100, ge=1, description="services with series of their own")
    segment_values: int = Field(20, ge=1, description="values a segment tag may have per service")
    label_chars: int = Field(128, ge=8, description="longest label value in characters")
    min_samples: int = Field(5, ge=1, description="fewer scored traces than this show no gauge")
    dedupe_hours: float = Field(
        48, gt=0, description="event-time hours in which the same trace id counts once"
    )
    future_seconds: float = Field(
        300, ge=0, description="a trace further in the future than this is set to its arrival time"
    )
    evidence_bytes: int = Field(64 * 2**10, ge=1024, description="kept of one worst trace")
    drain_seconds: float = Field(10, gt=0, description="longest time to finish after SIGTERM")
    stalled_seconds: float = Field(
        120,
        gt=0,
        description="work waits and nothing moves for so long: exit 1; readiness is off after a "
        "quarter of it. With Kafka not below the 60 s that a rebalance may take",
    )


class Settings(SettingsSection):
    """The whole configuration."""

    windows: NameList = Field(
        ["5m", "1h", "24h"], min_length=1, description="rolling windows, 60s to 90d"
    )
    segments: NameList = Field(
        [],
        description="tags that windows are also kept for; `model`, `prompt_version` and"
        " `answerable` count as tags",
    )
    builtin_scorers: bool = Field(
        True, description="score relevance, grounding and citations with the built-in scorers"
    )
    http: HttpSettings = HttpSettings()
    otlp: OtlpSettings = OtlpSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    consistency: ConsistencySettings = ConsistencySettings()
    state: StateSettings = StateSettings()
    privacy: PrivacySettings = PrivacySettings()
    resolvers: ResolverSettings = ResolverSettings()
    sampling: SamplingSettings = SamplingSettings()
    judge: JudgeSettings = JudgeSettings()
    hhem: HhemSettings = HhemSettings()
    alerts: AlertSettings = AlertSettings()
    slos: list[SloSettings] = Field(
        [
            SloSettings(name="availability", bad="failed"),
            SloSettings(name="latency", bad="slow", seconds=10, objective=0.95),
        ],
        description="objectives with an error budget",
    )
    drift: DriftDetectionSettings = DriftDetectionSettings()
    kafka: KafkaSettings = KafkaSettings()
    results_export: ResultsExportSettings = ResultsExportSettings()
    limits: LimitSettings = LimitSettings()

    @field_validator("windows")
    @classmethod
    def _durations(cls, value: list[str]) -> list[str]:
        for name in value:
            bucket_seconds(parse_window(name))
        check_distinct(value)
        return sorted(value, key=parse_window)

    @field_validator("segments")
    @classmethod
    def _tags(cls, value: list[str]) -> list[str]:
        if not all(name.strip() for name in value):
            raise ValueError("the name of a tag is needed")
        check_distinct(value)
        return value

    @field_validator("slos")
    @classmethod
    def _names(cls, value: list[SloSettings]) -> list[SloSettings]:
        check_distinct([slo.name for slo in value])
        return value
