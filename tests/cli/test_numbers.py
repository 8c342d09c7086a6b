"""Numbers on the command line: nan, inf and what overflows are refused in every option of every verb."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from socsched.cli.options import Number, Numbers, Percentage, Quantity, Slack
from socsched.cli.root import cli
from socsched.cli.search_options import NAMES
from socsched.errors import UsageError
from socsched.planning.planners import Option
from socsched.units import UNITS, parse_number

NUMERIC = (Number, Numbers, Percentage, Quantity, Slack, click.IntRange, type(click.INT))
WORDS = ("nan", "-nan", "inf", "-inf", "infinity", "1e999", "1_0", "٣", "0x10", "")
UNITS_TRIED = ("", "%", " %", *{unit for units in UNITS.values() for unit in units})


def options(command: click.Command, context: click.Context, name: str = "") -> Iterator[tuple[str, click.Parameter]]:
    """Yield every parameter of a command and of those below it, with the words that lead there."""
    yield from ((f"{name} {parameter.name}", parameter) for parameter in command.params)
    if isinstance(command, click.Group):
        below = click.Context(command, parent=context)
        for each in command.list_commands(below):
            found = command.get_command(below, each)
            assert found is not None
            yield from options(found, below, f"{name} {each}")


def test_every_option_that_takes_a_number_refuses_what_is_none() -> None:
    tried = 0
    for name, parameter in options(cli, click.Context(cli)):
        assert not isinstance(parameter.type, (click.FloatRange, type(click.FLOAT))), f"{name} takes nan"
        if not isinstance(parameter.type, NUMERIC):
            continue
        tried += 1
        for word in WORDS:
            for unit in UNITS_TRIED:
                if isinstance(parameter.type, click.IntRange) and word in ("1_0", "٣"):
                    continue  # Python's own integers, none of which is out of the ordinary
                with pytest.raises(click.BadParameter):
                    parameter.type.convert(f"{word}{unit}", parameter, None)
    assert tried > 40


@pytest.mark.parametrize("text", WORDS)
def test_no_number_is_read_from_them(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number"):
        parse_number(text)


@pytest.mark.parametrize("text", ["1", "-1.5", "1e3", ".5", " 2 "])
def test_numbers_are_read(text: str) -> None:
    assert parse_number(text) == float(text)


@pytest.mark.parametrize(("text", "slack"), [("10%", (0.1, 0)), ("10ms", (0.0, 10_000_000))])
def test_slack_is_a_part_or_a_time(text: str, slack: tuple[float, int]) -> None:
    assert Slack().convert(text, None, None) == slack


def test_guard_and_plan_take_the_same_options_of_planning() -> None:
    def taken(verb: str) -> dict[str | None, object]:
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None
        return {parameter.name: parameter.to_info_dict() for parameter in command.params}

    plan, guard = taken("plan"), taken("guard")
    assert len(NAMES) > 14
    for name in (*NAMES, "platform", "mode"):
        assert plan[name] == guard[name], name


@pytest.mark.parametrize("text", ["nan", "inf", "1e999"])
def test_options_of_planners_are_numbers_too(text: str) -> None:
    assert Option(0.5, "a share").read("share", "0.25") == 0.25
    with pytest.raises(UsageError, match="expected float"):
        Option(0.5, "a share").read("share", text)
