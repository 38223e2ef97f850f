"""Commands as documentation and help write them: are their options there?"""

import shlex

import click

from seriatim.cli import COMMANDS, main


def unknown_options(line: str) -> list[str]:
    """Of `seriatim command … --option …`: the options that this command does not have."""
    _, name, *words = shlex.split(line.partition("#")[0])
    if name not in COMMANDS:
        return []
    command = main.get_command(click.Context(main), name)
    if isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words[0]]
    assert command is not None
    known = {"--help"} | {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
