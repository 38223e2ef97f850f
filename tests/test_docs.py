"""Every example in the documentation is run, and what the page shows must be what comes out.

Blocks of a page run from top to bottom, in a folder of the page's own:

- `python`: all blocks of a page share one namespace. A block `text output` after it is exactly what it prints.
- `console`: a line `$ command` is run, the lines below it are exactly its output; with none, only success counts.
  A line `...` stands for any lines. `console exit=1` says which exit code the last command has. `console no-run` is
  for what cannot run inside a test (it takes minutes, or runs the tests): then only the named command must exist.
- `toml` must parse; `text` and `mermaid` are only shown. Anything else is an error, so that no example goes unchecked.

A page whose examples talk to `nats://127.0.0.1:4222` is run against a real `seriatim up` on a free port, started once:
that address stands for it, and commands find it by SERIATIM_URL.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from seriatim.cli import COMMANDS
from seriatim.order import GUARANTEES
from tests.cli.examples import unknown_options
from tests.waiting import wait

REPOSITORY = Path(__file__).parent.parent
PAGES = sorted(
    [
        *REPOSITORY.glob("*.md"),
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / "src").rglob("README.md"),
        *(REPOSITORY / "tests").rglob("README.md"),
    ]
)
OPTIONS = {"python": r"", "console": r"no-run|exit=\d+", "text": r"output", "toml": r"", "mermaid": r""}
FENCE = re.compile(r"^( *)(`{3,})(.*)$")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
COMMAND_SECONDS_MAX = 240
PAGE_SECONDS_MAX = 1_500  # some commands start a JVM, on a machine that does other things as well
LIVE_URL = "nats://127.0.0.1:4222"
READY_SECONDS_MAX = 120
LINE_WIDTH_MAX = 120
ROW_WIDTH_MAX = 140  # of a row of a table, without the targets of its links

TREE_PAGES = {"docs/serving.md"}  # run against a tree: the one in their block with the nodes' parents

# Their examples start Spark, each anew: they are run by `make test-long`.
SPARK_PAGES = {
    "docs/archive.md",
    "docs/audit-at-scale.md",
    "docs/filters.md",
    "docs/pipeline.md",
    "docs/plan.md",
    "docs/replay.md",
}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: name_of(page))


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


class Block(NamedTuple):
    """A fenced block. `place` is where to look when it fails, `line` the line of its fence."""

    place: str
    line: int
    language: str
    option: str
    text: str


class Command(NamedTuple):
    """One line after a `$`, and the output shown below it."""

    words: str
    shown: list[str]


def blocks_of(page: str, text: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    blocks = []
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        if not (fence := FENCE.match(line)):
            continue
        indent, ticks, info = fence.groups()
        place = f"{page}:{number}"
        language, _, option = info.strip().partition(" ")
        assert language in OPTIONS, f"{place}: language {language!r}; use one of {', '.join(OPTIONS)}"
        assert not option or re.fullmatch(OPTIONS[language], option), f"{place}: {language} knows no {option!r}"
        inside = []
        for _, content in lines:
            if content.strip() == ticks:
                break
            inside.append(content.removeprefix(indent))
        else:
            pytest.fail(f"{place}: the block is never closed")
        blocks.append(Block(place, number, language, option, "".join(f"{content}\n" for content in inside)))
    return blocks


def lines_outside_blocks(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not in a fenced block, with their numbers."""
    ticks = ""
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if not ticks and fence:
            ticks = fence[2]
        elif not ticks:
            yield number, line
        elif line.strip() == ticks:
            ticks = ""


def anchors_of(page: Path) -> set[str]:
    """What a link may have after its `#`: the headings of a page, spelled as GitHub does it."""
    lines = (line for _, line in lines_outside_blocks(page.read_text(encoding="utf-8")))
    headings = (re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()) for line in lines if line.startswith("#"))
    return {heading.strip().replace(" ", "-") for heading in headings}


def too_wide(line: str) -> str:
    """What is wrong with the width of a line of text or a row of a table; empty if it fits."""
    if line.lstrip().startswith("|"):
        width = len(re.sub(r"\]\([^)]*\)", "]", line))
        return f"a row of {width} characters; split the table or shorten it" if width > ROW_WIDTH_MAX else ""
    return f"a line of {len(line)} characters; wrap it at {LINE_WIDTH_MAX}" if len(line) > LINE_WIDTH_MAX else ""


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block. One that ends in a backslash goes on in the next line."""
    commands: list[Command] = []
    for line in block.text.splitlines():
        if commands and commands[-1].words.endswith("\\"):
            commands[-1] = Command(commands[-1].words[:-1] + line.removeprefix(">"), [])
        elif line.startswith("$ "):
            commands.append(Command(line[2:], []))
        else:
            assert commands, f"{block.place}: a console block begins with a line '$ command'"
            commands[-1].shown.append(line)
    assert commands, f"{block.place}: the console block is empty"
    return commands


def same_output(shown: list[str], actual: str) -> bool:
    """Whether the output is what the page shows; a line `...` stands for any number of lines."""
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line.rstrip()) + r"[ \t]*\n" for line in shown)
    if actual and not actual.endswith("\n"):
        actual += "\n"
    return re.fullmatch(pattern, actual) is not None


def check_python(block: Block, module: ModuleType) -> str:
    """Run the block in the page's namespace, with line numbers of the page; what it printed."""
    code = compile("\n" * block.line + block.text, block.place.rpartition(":")[0], "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, module.__dict__)
    return printed.getvalue()


def environment() -> dict[str, str]:
    """This interpreter's commands and this source tree first."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(REPOSITORY / "src"),
        "COLUMNS": "80",
    }


@pytest.fixture(scope="module")
def live_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real NATS server and sequencer for the pages that need one."""
    with up(tmp_path_factory.mktemp("up")) as url:
        yield url


@contextlib.contextmanager
def up(folder: Path, *words: str) -> Iterator[str]:
    """The URL of a NATS server and sequencers that are ready."""
    ready = folder / "ready.json"
    command = ["seriatim", "up", "--port", "0", "--ready-file", str(ready), *words]
    process = subprocess.Popen(
        command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait(lambda: ready.exists() or process.poll() is not None, " ".join(command))
        assert process.poll() is None, f"{' '.join(command)}: exit code {process.returncode}"
        yield json.loads(ready.read_text())["url"]
    finally:
        process.terminate()
        process.wait(READY_SECONDS_MAX)


def is_live(block: Block) -> bool:
    """Whether the block is run, and against a server."""
    return block.language in ("python", "console") and block.option != "no-run" and LIVE_URL in block.text


def check_console(block: Block, folder: Path) -> None:
    """Run each command in the page's folder."""
    commands = commands_of(block)
    for i, command in enumerate(commands):
        done = subprocess.run(
            command.words,
            shell=True,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
        )
        is_last = i == len(commands) - 1
        code = int(block.option.removeprefix("exit=")) if is_last and block.option else 0
        what = f"{block.place}: $ {command.words}\n{done.stdout}"
        assert done.returncode == code, f"{what}\nexit code {done.returncode}, the page says {code}"
        if command.shown:
            assert same_output(command.shown, done.stdout), f"{what}\nis not what the page shows"


def check_exists(block: Block) -> None:
    """A command that is not run must at least be there, and have the options that the page gives it."""
    targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    for command in commands_of(block):
        program, *words = command.words.split()
        name = words[0] if words else ""
        if program == "make":
            known = name in targets
        elif program == "seriatim":
            known = name in COMMANDS
            assert not (wrong := unknown_options(command.words)), f"{block.place}: {command.words}: no option {wrong}"
        elif program == "python":
            known = (REPOSITORY / name).is_file() or name == "-m"
        elif program == "pip":
            known = set(re.findall(r"\[(.*)\]", command.words)[0].split(",")) <= extras
        else:
            known = False
        assert known, f"{block.place}: no such make target, seriatim command or file: {command.words}"


@pytest.mark.timeout(PAGE_SECONDS_MAX)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] if name_of(page) in SPARK_PAGES else []) for page in PAGES],
    ids=lambda page: name_of(page),
)
def test_examples_do_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    blocks = blocks_of(str(page.relative_to(REPOSITORY)), page.read_text(encoding="utf-8"))
    with contextlib.ExitStack() as stack:
        if name_of(page) in TREE_PAGES:
            tree = tmp_path / "tree.toml"
            tree.write_text(next(block.text for block in blocks if "nodes.eu.parent" in block.text), encoding="utf-8")
            url = stack.enter_context(up(tmp_path, "--tree", str(tree)))
        elif any(is_live(block) for block in blocks):
            url = request.getfixturevalue("live_url")
        else:
            url = ""
        check_page(blocks, url, tmp_path, monkeypatch)


def check_page(blocks: list[Block], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks from top to bottom. `url`: of what stands for the live server."""
    if url:
        monkeypatch.setenv("SERIATIM_URL", url)
        blocks = [block._replace(text=block.text.replace(LIVE_URL, url)) for block in blocks]
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # classes defined on the page look their module up by name
    monkeypatch.chdir(tmp_path)
    printed: str | None = None
    for block in blocks:
        if block.language == "python":
            printed = check_python(block, module)
        elif block.language == "console" and block.option == "no-run":
            check_exists(block)
        elif block.language == "console":
            check_console(block, tmp_path)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.option == "output":
            assert printed is not None, f"{block.place}: no python block before this output"
            assert block.text == printed, f"{block.place}: the page shows something else than the program prints"


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: broken link {target}"


@each_page
def test_anchors_lead_to_a_heading(page: Path) -> None:
    for target, anchor in ANCHOR.findall(page.read_text(encoding="utf-8")):
        if "://" not in target and (target.endswith(".md") or not target):
            there = page.parent / target if target else page
            assert anchor in anchors_of(there), f"{page}: {there.name} has no heading #{anchor}"


@each_page
def test_lines_fit_a_screen(page: Path) -> None:
    for number, line in lines_outside_blocks(page.read_text(encoding="utf-8")):
        assert not (problem := too_wide(line)), f"{page}:{number}: {problem}"


def test_every_page_of_docs_is_linked_from_the_index() -> None:
    index = REPOSITORY / "docs" / "README.md"
    linked = {(index.parent / target).resolve() for target in LINK.findall(index.read_text(encoding="utf-8"))}
    missing = set((REPOSITORY / "docs").glob("*.md")) - linked - {index}
    assert not missing, f"link from {index}: {sorted(path.name for path in missing)}"


def test_the_readme_can_be_read_in_one_sitting() -> None:
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_path_of_an_event_is_short() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    walk = page.split("## The path of one event")[1].split("\n## ")[0]
    files = {target for target in LINK.findall(walk) if target.endswith(".py")}
    assert 10 < len(files) <= 25, f"an event passes {len(files)} files"


def test_the_table_of_guarantees_is_the_one_in_the_code() -> None:
    page = (REPOSITORY / "docs" / "guarantees.md").read_text(encoding="utf-8")
    table = [f"| `{guarantee.name}` | {guarantee.promise} |" for guarantee in GUARANTEES.values()]
    assert "\n".join(table) in page


# ── the checks above, checked ─────────────────────────────────────────────────────────────────────────────────────


def test_blocks_know_their_place() -> None:
    text = "a\n```python\nx = 1\n```\n- item\n  ```text output\n  one\n    two\n  ```\n"
    first, second = blocks_of("page.md", text)
    assert first == Block("page.md:2", 2, "python", "", "x = 1\n")
    assert second == Block("page.md:6", 6, "text", "output", "one\n  two\n")


def test_lines_in_blocks_may_be_wide_and_targets_of_links_do_not_count() -> None:
    text = "a\n```text\nb\n```\nc"
    assert list(lines_outside_blocks(text)) == [(1, "a"), (5, "c")]
    assert too_wide("x" * 121) == "a line of 121 characters; wrap it at 120"
    assert not too_wide("x" * 120)
    assert not too_wide(f"| {'x' * 120} | [y](../{'z' * 60}) |")
    assert "a row of 144 characters" in too_wide(f"| {'x' * 140} |")


@pytest.mark.parametrize("fence", ["```", "```bash", "```python no-run", "```console exit=x"])
def test_an_unknown_kind_of_block_is_an_error(fence: str) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:1: "):
        blocks_of("page.md", f"{fence}\n```\n")


@pytest.mark.parametrize(
    ("shown", "actual", "same"),
    [
        (["a", "b"], "a\nb\n", True),
        (["a", "b"], "a\nb", True),
        (["a"], "a\nb\n", False),
        (["a", "..."], "a\nb\nc\n", True),
        (["...", "c"], "a\nb\nc\n", True),
        (["a", "...", "c"], "a\nc\n", True),
        (["a", "...", "c"], "a\nb\n", False),
        (["a.c"], "abc\n", False),
    ],
)
def test_dots_stand_for_any_lines(shown: list[str], actual: str, same: bool) -> None:
    assert same_output(shown, actual) is same


def console(text: str, option: str = "") -> Block:
    return Block("page.md:1", 1, "console", option, text)


def test_commands_share_the_folder_and_are_compared(tmp_path: Path) -> None:
    check_console(console("$ echo one > file\n$ cat \\\n> file\none\n"), tmp_path)
    with pytest.raises(AssertionError, match="not what the page shows"):
        check_console(console("$ cat file\ntwo\n"), tmp_path)


def test_exit_codes_are_compared(tmp_path: Path) -> None:
    check_console(console("$ true\n$ exit 3\n", "exit=3"), tmp_path)
    with pytest.raises(AssertionError, match="exit code 3, the page says 0"):
        check_console(console("$ exit 3\n"), tmp_path)


def test_what_is_not_run_must_exist() -> None:
    check_exists(console("$ make demo\n$ seriatim audit log\n$ python tests/test_docs.py\n", "no-run"))
    with pytest.raises(AssertionError, match="make dmo"):
        check_exists(console("$ make dmo\n", "no-run"))


def test_errors_in_python_blocks_name_the_line_of_the_page() -> None:
    (block,) = blocks_of("page.md", "text\n\n```python\nx = 1\nx / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as caught:
        check_python(block, ModuleType("page"))
    assert caught.traceback[-1].lineno + 1 == 5
