"""The errors of `seriatim archive` before Spark is started."""

from click.testing import CliRunner

from seriatim.cli import main


def test_places_are_needed() -> None:
    result = CliRunner().invoke(main, ["archive"])
    assert result.exit_code == 2
    assert "--out and --checkpoint" in result.output


def test_commands_beside_it_are_in_its_help() -> None:
    result = CliRunner().invoke(main, ["archive", "--help"])
    assert result.exit_code == 0
    for word in ("compact", "show", "--follow", "exactly once"):
        assert word in result.output
    result = CliRunner().invoke(main, ["archive", "compact", "--help"])
    assert result.exit_code == 0 and "--grace" in result.output
