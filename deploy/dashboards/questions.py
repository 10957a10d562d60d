"""The queries of the questions.

Every number of a service is taken over its agents: sidecars of one service each export their own.
"""

from __future__ import annotations

from deploy.dashboards.promql import of_service

__all__ = ["CHOSEN", "SHARES", "Number", "chosen", "every", "share"]

SHARES = ("works", "answered", "grounded", "retrieved", "cited", "complete")
"""The questions whose number is a share, in the order in which people ask them."""

MOVING = SHARES[:-1]
"""Those whose movement is known: no cheap score tells of every request whether it is complete."""

CHOSEN = "${question}"
_BY_WINDOW = "by (service, window)"


class Number:
    """The number of a question, over the window that ragmeter has chosen for it.

    Args:
        value: The gauge, by service and window.
        question: Its question.
        missed: What is there, by service, while the goal is missed; "" where Prometheus knows none.
        goal: What is there, by service, when there is a goal.
    """

    def __init__(self, value: str, question: str, *, missed: str = "", goal: str = "") -> None:
        rests_on = of_service("rag_question_source_info", f'question="{question}"')
        self._value = f"avg {_BY_WINDOW} ({value}) and on (service, window) {rests_on}"
        self._missed = missed
        self._goal = goal

    def by_goal(self) -> dict[str, str]:
        """The number as one of three queries: which of them answers says how it stands."""
        if not self._goal:
            return {"plain": self._value}
        return {
            "plain": f"{self._value} unless on (service) {self._goal}",
            "kept": f"{self._value} and on (service) {self._goal}"
            f" unless on (service) ({self._missed})",
            "missed": f"{self._value} and on (service) ({self._missed})",
        }


def share(question: str) -> Number:
    """A share; its goal is missed when its whole interval is below."""
    upper = of_service(f"rag_{question}_upper_ratio")
    rests_on = of_service("rag_question_source_info", f'question="{question}"')
    goal = f"max by (service) ({of_service(f'rag_{question}_goal_ratio')})"
    highest = f"max by (service) ({upper} and on (service, window) {rests_on})"
    return Number(
        of_service(f"rag_{question}_ratio"),
        question,
        missed=f"{highest} < {goal}",
        goal=goal,
    )


def every(gauge: str, *matchers: str) -> str:
    """A gauge of every share that has it, as series by the label `question`."""
    asked = MOVING if gauge.startswith("change_") else SHARES
    names = f'__name__=~"rag_(?:{"|".join(asked)})_{gauge}"'
    found = f"{of_service('', names, *matchers)}"
    return f'label_replace({found}, "question", "$1", "__name__", "rag_([a-z]+)_.+")'


def chosen(gauge: str, *matchers: str) -> str:
    """A gauge of the question that is chosen at the top."""
    return of_service("", f'__name__="rag_{CHOSEN}_{gauge}"', *matchers)
