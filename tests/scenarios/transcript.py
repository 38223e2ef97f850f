"""The text format of a scenario.

    # Prose: what the story is and what to look at.

    command
    command
    ----
    what happened
    what happened

A line that starts with # is prose. Commands up to `----` form a block; what they did stands below, up to the next
empty line. The first block describes the world.
"""

from dataclasses import dataclass, field

RULE = "----"


@dataclass
class Block:
    """Commands, the line the first of them stands on, and what they did."""

    line: int
    commands: list[str]
    output: list[str] = field(default_factory=list)


@dataclass
class Transcript:
    """Prose (strings, also the empty lines) and blocks, in the order of the file."""

    parts: list[str | Block]

    @classmethod
    def parse(cls, text: str) -> "Transcript":
        parts: list[str | Block] = []
        commands: list[str] = []
        block: Block | None = None
        for number, line in enumerate(text.splitlines(), 1):
            if block is not None and line.strip():
                block.output.append(line)
            elif line == RULE:
                block = Block(number - len(commands), commands)
                parts.append(block)
                commands = []
            elif line.strip() and not line.startswith("#"):
                commands.append(line.strip())
            else:
                assert not commands, f"line {number}: {commands} is not followed by {RULE}"
                block = None
                parts.append(line)
        assert not commands, f"the last commands, {commands}, are not followed by {RULE}"
        return cls(parts)

    def blocks(self) -> list[Block]:
        return [part for part in self.parts if isinstance(part, Block)]

    def text(self) -> str:
        lines: list[str] = []
        for part in self.parts:
            lines.extend([part] if isinstance(part, str) else [*part.commands, RULE, *part.output])
        return "\n".join(lines) + "\n"
