"""The root of the settings tree, with limits and the state file.

`ragmeter.config.loader` loads it; the configuration reference consists of these descriptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ragmeter.config.base import Distinct, NameList, SettingsSection, check_distinct, setting
from ragmeter.config.inputs import FeedbackSettings, HttpSettings, OtlpSettings, ResolverSettings
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
from ragmeter.core.clocks import parse_window


class StateSettings(SettingsSection):
    """The files that outlive the process."""

    path: Path = setting(
        Path(".ragmeter/state.sqlite"), "SQLite file of queue, windows and progress"
    )
    dead_letters: Path = setting(
        Path(".ragmeter/dead-letters.jsonl"), "file for what could not be read"
    )
    synchronous: Literal["full", "normal"] = setting(
        "full", "`full` survives a power cut; `normal` survives a killed process only"
    )


class LimitSettings(SettingsSection):
    """Bounds on input, memory and waiting."""

    body_bytes: int = setting(20 * 2**20, "largest request body, also after decompression", ge=1024)
    trace_bytes: int = setting(2 * 2**20, "largest single trace", ge=1024)
    connections: int = setting(
        400, "open connections of a port; beyond it the idlest one is closed", ge=8
    )
    queue: int = setting(10_000, "traces waiting before HTTP answers 429", ge=1)
    drawn: int = setting(
        5_000, "traces waiting for a judge, a model or an embedding; beyond it they are shed", ge=1
    )
    services: int = setting(100, "services with series of their own", ge=1)
    segment_values: int = setting(20, "values a segment tag may have per service", ge=1)
    label_chars: int = setting(128, "longest label value in characters", ge=8)
    min_samples: int = setting(5, "fewer scored traces than this show no gauge", ge=1)
    dedupe_hours: float = setting(
        48, "event-time hours in which the same trace id counts once", gt=0
    )
    future_seconds: float = setting(
        300, "a trace further in the future than this is set to its arrival time", ge=0
    )
    evidence_bytes: int = setting(64 * 2**10, "kept of one worst trace", ge=1024)
    drain_seconds: float = setting(10, "longest time to finish after SIGTERM", gt=0)
    stalled_seconds: float = setting(
        120,
        "work waits and nothing moves for so long: exit 1; readiness is off after a quarter of "
        "it. With Kafka not below the 60 s that a rebalance may take",
        gt=0,
    )


class Settings(SettingsSection, BaseSettings):
    """The whole configuration."""

    # names in lists and maps are matched by case; the loader decodes what is JSON
    model_config = SettingsConfigDict(
        case_sensitive=True, enable_decoding=False, validate_default=False
    )

    windows: NameList = setting(["5m", "1h", "24h"], "rolling windows, 60s to 90d", min_length=1)
    segments: NameList = setting(
        [],
        "tags that windows are also kept for; `model`, `prompt_version` and `answerable` count as "
        "tags",
    )
    builtin_scorers: bool = setting(
        True, "score relevance, grounding and citations with the built-in scorers"
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
    slos: Annotated[list[SloSettings], Distinct] = setting(
        [
            SloSettings(name="availability", bad="failed"),
            SloSettings(name="latency", bad="slow", seconds=10, objective=0.95),
        ],
        "objectives with an error budget",
    )
    drift: DriftDetectionSettings = DriftDetectionSettings()
    kafka: KafkaSettings = KafkaSettings()
    results_export: ResultsExportSettings = ResultsExportSettings()
    limits: LimitSettings = LimitSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the arguments alone; `load_settings` passes its own sources."""
        return (init_settings,)

    @field_validator("windows")
    @classmethod
    def _sort_windows(cls, value: list[str]) -> list[str]:
        return check_distinct(sorted(value, key=parse_window))

    @field_validator("segments")
    @classmethod
    def _name_tags(cls, value: list[str]) -> list[str]:
        if not all(name.strip() for name in value):
            raise ValueError("the name of a tag is needed")
        return check_distinct(value)
