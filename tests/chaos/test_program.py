"""One program for both homes."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import HOMES, parser_of


@pytest.mark.parametrize("home", sorted(HOMES))
def test_a_home_has_the_options_of_its_plan(home: str) -> None:
    plan_of, run_of = HOMES[home]
    given = vars(parser_of(home).parse_args(["--home", home, "--seed", "7"]))
    assert (given.pop("home"), given.pop("folder")) == (home, None)
    assert plan_of(**given) == plan_of(seed=7)
    assert run_of.__abstractmethods__ == frozenset()


def test_an_option_of_the_other_home_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser_of("kafka").parse_args(["--home", "kafka", "--overload", "3"])
    assert "--overload" in capsys.readouterr().err
