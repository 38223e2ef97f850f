"""The `seriatim` command itself: help without imports, suggestions, exit codes."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from seriatim import cli
from seriatim.model import InputError
from seriatim.pipeline.spark.requirements import RequirementMissing
from tests.cli.examples import unknown_options


def run_with(
    monkeypatch: pytest.MonkeyPatch, command: click.Command, *words: str, name: str = "pub"
) -> tuple[int, str]:
    """Call `seriatim pub` with `command` in its place; its exit code and what it wrote to stderr."""
    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda self, ctx, cmd_name: command)
    result = CliRunner().invoke(cli.main, [name, *words])
    return result.exit_code, result.stderr


def test_help_lists_every_command_without_importing_any() -> None:
    code = (
        "import sys\n"
        "from seriatim.cli import COMMANDS, main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "print([name for name in COMMANDS if f'seriatim.cli.{name}' in sys.modules])\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name, text in cli.COMMANDS.items():
        assert name in shown and text in shown
    titles = [shown.index(f"\n{title}:\n") for title in cli.GROUPS]
    assert titles == sorted(titles) and shown.index("\n  demo ") < shown.index("\n  serve ") < shown.index("\n  audit ")
    assert shown.endswith("[]\n")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_teaches(name: str) -> None:
    result = CliRunner().invoke(cli.main, [name, "--help"])
    assert result.exit_code == 0
    assert f"seriatim {name}" in result.stdout.partition("\n")[2], "show an example call below the usage line"


def options_without_help(name: str, command: click.Command) -> list[str]:
    found = [f"{name} {each.opts[0]}" for each in command.params if isinstance(each, click.Option) and not each.help]
    below = command.commands.items() if isinstance(command, click.Group) else ()
    return found + [each for inner, one in below for each in options_without_help(f"{name} {inner}", one)]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    command = cli.main.get_command(click.Context(cli.main), name)
    assert command is not None and options_without_help(name, command) == []
    assert "Exit code:" in (command.help or ""), "scripts need it"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_examples_in_help_have_options_that_are_there(name: str) -> None:
    shown = CliRunner().invoke(cli.main, [name, "--help"]).stdout
    for line in shown.splitlines():
        if line.startswith("    seriatim "):
            example = line.strip().partition("   ")[0]  # what it shows stands far behind it
            assert not unknown_options(example), example


def test_unknown_command_gets_a_suggestion() -> None:
    result = CliRunner().invoke(cli.main, ["simulte"])
    assert result.exit_code == 2
    assert "Did you mean 'simulate'?" in result.stderr


def test_unknown_command_like_no_other_gets_the_list() -> None:
    result = CliRunner().invoke(cli.main, ["zzz"])
    assert result.exit_code == 2
    assert f"Choose from {', '.join(sorted(cli.COMMANDS))}." in result.stderr


def test_what_spark_could_not_do_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = pytest.importorskip("pyspark.errors")

    @click.command()
    def command() -> None:
        raise errors.AnalysisException("[PATH_NOT_FOUND] Path does not exist: file:/nowhere.\nlots of\nJava")

    said = "Error: Spark: [PATH_NOT_FOUND] Path does not exist: file:/nowhere.\n"
    assert run_with(monkeypatch, command) == (1, said)
    assert run_with(monkeypatch, command, name="audit") == (2, said)


@pytest.mark.parametrize("name", sorted(cli.JUDGES))
def test_where_1_is_an_answer_it_is_nothing_else(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    @click.command()
    @click.pass_context
    def answer(context: click.Context) -> None:
        context.exit(1)

    @click.command()
    def lacking() -> None:
        raise RequirementMissing("Spark needs Java")

    @click.command()
    def broken() -> None:
        raise ZeroDivisionError

    @click.command()
    def cut() -> None:
        raise BrokenPipeError

    assert run_with(monkeypatch, answer, name=name) == (1, "")
    assert run_with(monkeypatch, lacking, name=name) == (2, "Error: Spark needs Java\n")
    code, said = run_with(monkeypatch, broken, name=name)
    assert code == 2 and said.startswith("Traceback") and said.endswith("ZeroDivisionError\n")
    assert run_with(monkeypatch, cut, name=name) == (2, "")


def test_bad_input_is_one_line_and_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def command() -> None:
        raise InputError("delay_ms", "-1 is negative", "give 0 or more")

    assert run_with(monkeypatch, command) == (2, "Error: delay_ms: -1 is negative; give 0 or more\n")


def test_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def command() -> None:
        raise KeyboardInterrupt

    code, stderr = run_with(monkeypatch, command)
    assert code == 130
    assert stderr == "Interrupted.\n"


def test_a_command_chooses_its_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.pass_context
    def command(context: click.Context) -> None:
        context.exit(3)

    assert run_with(monkeypatch, command) == (3, "")
