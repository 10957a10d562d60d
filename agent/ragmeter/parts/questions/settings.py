"""The settings of the questions."""

from __future__ import annotations

from pydantic import Field, field_validator

from ragmeter.config.base import SettingsSection
from ragmeter.parts.questions.catalogue import BY_NAME

# Of what users notice at once; of everything else only the team knows what it wants.
DEFAULT_GOALS = {"works": 0.99, "fast": 10.0}


class QuestionsSettings(SettingsSection):
    """The settings of the part."""

    goals: dict[str, float] = Field(
        {},
        description=(
            "what you want of each question: the least share (0 to 1) of `works`, `answered`, "
            "`grounded`, `retrieved`, `cited` or `complete`, the longest p95 in seconds of `fast`, "
            "the highest US dollars an answer of `cost`. `works` is 0.99 and `fast` 10 unless they "
            "are given; the others have no goal"
        ),
    )

    @field_validator("goals")
    @classmethod
    def _check_goals(cls, goals: dict[str, float]) -> dict[str, float]:
        for name, goal in goals.items():
            question = BY_NAME.get(name)
            if question is None:
                raise ValueError(f"{name!r} is no question: one of {', '.join(BY_NAME)} is needed")
            if goal <= 0 or (question.unit == "share" and goal >= 1):
                most = "below 1" if question.unit == "share" else "finite"
                raise ValueError(f"{name}: a number above 0 and {most} is needed, as 0.95")
        return goals

    def goal(self, question: str) -> float | None:
        """Return the goal of a question, None without one."""
        return (DEFAULT_GOALS | self.goals).get(question)
