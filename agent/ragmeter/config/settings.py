"""The root of the settings tree, with limits and the state file.

`ragmeter.config.loader` loads it; the configuration reference consists of these descriptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ragmeter.config.base import Distinct, NameList, SettingsSection, check_distinct
from ragmeter.config.inputs import (
    FeedbackSettings,
    HttpSettings,
    OtlpSettings,
    PrivacySettings,
    ResolverSettings,
)
from ragmeter.config.kafka import KafkaSettings
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
    ModelSettings,
    SamplingSettings,
    ScorerSettings,
)
from ragmeter.core.clocks import parse_window


class StateSettings(SettingsSection):
    """The files that outlive the process."""

    path: Path = Path(".ragmeter/state.sqlite")
    dead_letters: Path = Path(".ragmeter/dead-letters.jsonl")
    synchronous: Literal["full", "normal"] = "full"


class LimitSettings(SettingsSection):
    """Bounds on input, memory and waiting."""

    body_bytes: int = Field(20 * 2**20, ge=1024)
    trace_bytes: int = Field(2 * 2**20, ge=1024)
    connections: int = Field(400, ge=8)
    queue: int = Field(10_000, ge=1)
    drawn: int = Field(5_000, ge=1)
    services: int = Field(100, ge=1)
    reserved: NameList = Field([])
    segment_values: int = Field(20, ge=1)
    label_chars: int = Field(128, ge=8)
    min_samples: int = Field(5, ge=1)
    dedupe_hours: float = Field(48, gt=0)
    future_seconds: float = Field(300, ge=0)
    evidence_bytes: int = Field(64 * 2**10, ge=1024)
    drain_seconds: float = Field(10, gt=0)
    stalled_seconds: float = Field(120, gt=0)


class Settings(SettingsSection, BaseSettings):
    """The whole configuration."""

    # names in lists and maps are matched by case; the loader decodes what is JSON
    model_config = SettingsConfigDict(
        case_sensitive=True, enable_decoding=False, validate_default=False
    )

    windows: NameList = Field(["5m", "1h", "24h"], min_length=1)
    segments: NameList = Field([])
    builtin_scorers: bool = True
    scorers: ScorerSettings = ScorerSettings()
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
    models: ModelSettings = ModelSettings()
    alerts: AlertSettings = AlertSettings()
    slos: Annotated[list[SloSettings], Distinct] = Field(
        [
            SloSettings(name="availability", bad="failed"),
            SloSettings(name="latency", bad="slow", seconds=10, objective=0.95),
        ]
    )
    drift: DriftDetectionSettings = DriftDetectionSettings()
    kafka: KafkaSettings = KafkaSettings()
    results_export: ResultsExportSettings = ResultsExportSettings()
    limits: LimitSettings = LimitSettings()

    @property
    def draws_labels(self) -> bool:
        """Whether people are asked to label traces."""
        return self.sampling.draws_people and self.feedback.traces > 0

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

    @model_validator(mode="after")
    def _choose_model(self) -> Settings:
        if self.hhem.path is not None and self.models.path is not None:
            raise ValueError("hhem.path and models.path: the model tier has one model, set one")
        return self

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
