"""The core is light: the standard library and msgspec, nothing else, until a command asks for more."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "seriatim"
# The command line is click's, the pipeline is Spark's; everything else is the core.
CORE = sorted(
    ".".join(("seriatim", *path.relative_to(PACKAGE).parent.parts))
    for path in PACKAGE.rglob("__init__.py")
    if path.relative_to(PACKAGE).parts[0] not in {"cli", "pipeline"}
)
PROGRAM = """
import importlib, json, sys, time
before = set(sys.modules)
started = time.perf_counter()
for name in sys.argv[1:]:
    importlib.import_module(name)
elapsed_ms = 1000 * (time.perf_counter() - started)
imported = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps([elapsed_ms, sorted(imported - set(sys.stdlib_module_names) - {"seriatim"})]))
"""


def third_party_after_importing(*names: str) -> list[str]:
    """The third-party packages a fresh interpreter has loaded after importing `names`. Prints the time it took."""
    program = [sys.executable, "-c", PROGRAM, *names]
    answer = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    elapsed_ms, packages = json.loads(answer)
    print(f"import {', '.join(names)}: {elapsed_ms:.0f} ms")  # not asserted: a busy machine is not a bug
    # msgspec looks for typing_extensions and does without it; the development tools happen to bring it. Importing
    # multiprocessing makes __mp_main__, another name of the running program.
    return [package for package in packages if package not in {"typing_extensions", "__mp_main__"}]


def test_importing_seriatim_loads_nothing_of_the_lab() -> None:
    program = "import sys, seriatim; print([name for name in sys.modules if name.startswith('seriatim.lab')])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert answer == "[]\n"


def test_the_core_needs_msgspec_and_nothing_else() -> None:
    assert third_party_after_importing(*CORE) == ["msgspec"]


@pytest.mark.parametrize("name", CORE)
def test_each_part_can_be_imported_alone(name: str) -> None:
    """First import in a fresh interpreter: a cycle between modules would show here."""
    assert set(third_party_after_importing(name)) <= {"msgspec"}


def test_the_command_line_adds_click_only() -> None:
    assert third_party_after_importing("seriatim.cli") == ["click", "msgspec"]
