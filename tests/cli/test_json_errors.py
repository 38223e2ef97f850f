"""With --json every command speaks JSON lines on stderr too: errors of ours, of click, and what happens meanwhile."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from seriatim import cli
from seriatim.cli.common import json_option, notice
from seriatim.model import InputError, RequestRefused, TimedOut
from tests.cli.test_group import run_with


def takes_json(command: click.Command) -> bool:
    return any("--json" in each.opts for each in command.params)


def commands_with_json() -> list[list[str]]:
    """The words of every command that has --json."""
    found: list[list[str]] = []
    for name in cli.COMMANDS:
        command = cli.main.get_command(click.Context(cli.main), name)
        assert command is not None
        if takes_json(command):
            found.append([name])
        if isinstance(command, click.Group):
            found += [[name, inner] for inner, one in command.commands.items() if takes_json(one)]
    return found


@pytest.mark.parametrize("words", commands_with_json(), ids=" ".join)
def test_a_wrong_option_of_any_command_is_a_json_line(words: list[str]) -> None:
    result = CliRunner().invoke(cli.main, [*words, "--json", "--nonsense"])
    assert result.exit_code == 2 and result.stdout == ""
    assert [set(json.loads(line)) for line in result.stderr.splitlines()] == [{"error"}]
    assert "--nonsense" in json.loads(result.stderr)["error"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("delay_ms", "-1 is negative", "give 0 or more"), 2),
        (TimedOut("waited 5 s: “nothing” came"), 3),
        (RequestRefused("no"), 1),
        (click.ClickException("of another kind"), 1),
    ],
)
def test_errors_are_json_where_json_was_asked_for(monkeypatch: pytest.MonkeyPatch, error: Exception, code: int) -> None:
    @click.command()
    @json_option
    def command(as_json: bool) -> None:
        raise error

    said, stderr = run_with(monkeypatch, command, "--json")
    assert (said, json.loads(stderr)) == (code, {"error": str(error)})
    assert run_with(monkeypatch, command) == (code, f"Error: {error}\n")


def test_an_interrupt_is_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @json_option
    def command(as_json: bool) -> None:
        raise KeyboardInterrupt

    code, stderr = run_with(monkeypatch, command, "--json")
    assert (code, json.loads(stderr)) == (130, {"error": "Interrupted."})


def test_what_stands_behind_two_dashes_is_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.argument("words", nargs=-1)
    def command(words: tuple[str, ...]) -> None:
        raise InputError("words", "are wrong", "give others")

    assert run_with(monkeypatch, command, "--", "--json") == (2, "Error: words: are wrong; give others\n")


def test_a_command_that_speaks_json_chooses_its_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @json_option
    @click.pass_context
    def command(context: click.Context, as_json: bool) -> None:
        notice("listening to “orders”")
        context.exit(3)

    code, stderr = run_with(monkeypatch, command, "--json")
    assert (code, json.loads(stderr)) == (3, {"message": "listening to “orders”"})
    assert run_with(monkeypatch, command) == (3, "listening to “orders”\n")


def test_the_process_itself_and_warnings_of_the_library() -> None:
    """As scripts see it: the real command, whose warnings would be plain text if nobody said otherwise."""
    program = (
        "import logging, sys, click\n"
        "from seriatim import cli\n"
        "from seriatim.cli.common import json_option\n"
        "@click.command()\n"
        "@json_option\n"
        "def command(as_json):\n"
        "    logging.getLogger('seriatim.client').warning('slow', extra={'seconds': 3})\n"
        "    raise KeyboardInterrupt\n"
        "cli.LazyGroup.get_command = lambda self, ctx, cmd_name: command\n"
        "sys.argv = ['seriatim', 'demo', '--json']\n"
        "cli.main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    warning, interrupted = map(json.loads, ended.stderr.splitlines())
    assert (warning["message"], warning["level"], warning["seconds"]) == ("slow", "WARNING", 3)
    assert (ended.returncode, interrupted) == (130, {"error": "Interrupted."})


def test_reports_are_one_line_each(tmp_path: Path) -> None:
    assert len(CliRunner().invoke(cli.main, ["demo", "--simulated", "--json"]).stdout.splitlines()) == 1
    (tmp_path / "deliveries.jsonl").write_text(
        '{"subscriber": "s", "position": 0, "event_id": "e", "topic": "t"}\n', encoding="utf-8"
    )
    assert len(CliRunner().invoke(cli.main, ["audit", str(tmp_path), "--json"]).stdout.splitlines()) == 1
