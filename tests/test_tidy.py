"""The shape of the code, kept by a test: who may import whom, what a file may hold, how long it may be."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "src" / "seriatim"
LINES_MAX = 500

# model ← order ← protocols ← {sim, runtime}. A folder may import itself and what stands here; a new folder must be
# added, so that its place is a decision. The root package exports, the command line joins everything together.
MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "order": {"model"},
    "filters": {"model"},
    "protocols": {"model", "order", "filters"},
    "audit": {"model", "order"},
    "sim": {"model", "order", "protocols", "audit"},
    "explore": {"model", "order", "filters", "protocols", "audit", "sim"},
    "runtime": {"model", "order", "protocols"},
    "brokers": {"model", "order", "protocols", "runtime"},
    "server": {"model", "order", "protocols", "runtime", "brokers"},
    "peers": {"model", "protocols", "runtime"},
    "overlay": {"model", "protocols", "runtime"},
    "client": {"model", "order", "filters", "protocols", "runtime", "brokers", "server", "peers", "overlay", "audit"},
    "experiments": {"model", "order", "filters", "protocols", "audit", "sim"},
    "pipeline": {"model", "order", "filters", "protocols", "audit", "sim", "experiments", "brokers"},
}
UNRESTRICTED = {"", "cli"}

# Third-party packages: msgspec anywhere, these only in the folder that exists for them.
THIRD_PARTY: dict[str, set[str]] = {
    "brokers": {"nats", "nkeys"},
    "cli": {"click"},
    "pipeline": {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "matplotlib"},
    "runtime": {"uvloop"},
}

# The live demo is also about programs that do not use Seriatim: these talk to NATS as everybody does.
PLAIN_NATS = {"cli/demo_checkout.py", "cli/demo_sites.py"}

# The same results as tree_model.py, ten times as fast where numpy is there; imported only then.
FASTER = {"experiments/tree_waves.py"}

# Time and random numbers are handed to a protocol, and a driver does its input and output.
PURE = ("model", "order", "filters", "protocols")
IMPURE = {"asyncio", "datetime", "logging", "random", "secrets", "selectors", "socket", "threading", "time", "uuid"}
# Timestamps are a type of values that filters compare; nobody there asks what time it is.
VALUE_TYPES = {"filters/values.py": {"datetime"}, "filters/parser.py": {"datetime"}}

MODULES = sorted(PACKAGE.rglob("*.py"))
PROTOCOLS = sorted(path for path in (PACKAGE / "protocols").iterdir() if path.is_dir() and path.name != "__pycache__")

each_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def folder_of(path: Path) -> str:
    """The top folder of the package a module is in; '' for the package itself."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that `path` imports, wherever in the file, by its full name and with its line."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write the full name"
            assert node.module is not None
            if node.module == "seriatim":  # `from seriatim import sim` imports seriatim.sim
                for alias in node.names:
                    yield node.lineno, f"seriatim.{alias.name}"
            else:
                yield node.lineno, node.module


@each_module
def test_import_rule(path: Path) -> None:
    folder = folder_of(path)
    if folder in UNRESTRICTED:
        return
    assert folder in MAY_IMPORT, f"say in {Path(__file__).name} what seriatim.{folder} may import"
    allowed = MAY_IMPORT[folder] | {folder}
    for line, name in imported(path):
        top, _, rest = name.partition(".")
        if top == "seriatim":
            target = rest.partition(".")[0]
            assert target in allowed, f"{path}:{line}: seriatim.{folder} may not import {name}"


@each_module
def test_third_party_packages_stay_where_they_belong(path: Path) -> None:
    allowed = {"seriatim", "msgspec"} | THIRD_PARTY.get(folder_of(path), set())
    if path.relative_to(PACKAGE).as_posix() in PLAIN_NATS:
        allowed |= {"nats"}
    if path.relative_to(PACKAGE).as_posix() in FASTER:
        allowed |= {"numpy"}
    for line, name in imported(path):
        top = name.partition(".")[0]
        assert top in sys.stdlib_module_names or top in allowed, f"{path}:{line}: imports {name}"


@each_module
def test_no_clock_randomness_or_input_output_in_the_pure_part(path: Path) -> None:
    if folder_of(path) in PURE:
        impure = IMPURE - VALUE_TYPES.get(path.relative_to(PACKAGE).as_posix(), set())
        for line, name in imported(path):
            assert name.partition(".")[0] not in impure, f"{path}:{line}: imports {name}; hand it in instead"


@each_module
def test_module_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(parse(path)), f"{path}: say what this file is for and how it fits"


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.name == "__init__.py"], ids=lambda path: path.parent.name
)
def test_init_only_exports(path: Path) -> None:
    folder = path.parent.relative_to(PACKAGE).as_posix()
    if folder == "cli":  # holds the group that imports each command only when it is called
        return
    names = {"__all__", "__version__"} if folder == "." else {"__all__"}
    for node in parse(path).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        is_export = isinstance(node, ast.Assign) and {ast.unparse(target) for target in node.targets} <= names
        if folder == ".":  # exports lazily, so that `import seriatim` stays light: types for checkers, __getattr__
            is_import |= isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse
            is_export |= isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
        assert is_docstring or is_import or is_export, f"{path}:{node.lineno}: belongs in a module of its own"


@pytest.mark.parametrize(
    "path",
    [path for folder in ("src", "tests", "bench", "soak") for path in sorted((REPOSITORY / folder).rglob("*.py"))],
    ids=lambda path: str(path.relative_to(REPOSITORY)),
)
def test_file_is_readable_in_one_sitting(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LINES_MAX, f"{path} has {lines} lines; more than {LINES_MAX} are hard to read at once: split it"


@each_module
def test_errors_are_caught_by_name(path: Path) -> None:
    for node in ast.walk(parse(path)):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)} if node.type else {""}
        is_broad = not caught.isdisjoint({"", "Exception", "BaseException"})
        passes_on = ast.unparse(node.body[-1]) == "raise"  # a note was added, nothing was hidden
        assert passes_on or not is_broad, f"{path}:{node.lineno}: hides errors nobody thought of; name what is expected"


@pytest.mark.parametrize("folder", PROTOCOLS, ids=lambda path: path.name)
@pytest.mark.parametrize("name", ["README.md", "messages.py"])
def test_protocol_folder_explains_itself(folder: Path, name: str) -> None:
    assert (folder / name).is_file(), f"{folder / name} is missing"
