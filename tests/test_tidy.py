"""The shape of the code, kept by a test: who may import whom, what a file may hold, how long it may be."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import LIMITS_S

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "src" / "seriatim"
TESTS = REPOSITORY / "tests"
LINES_MAX = 500

# model ← order ← protocols ← runtime ← brokers ← server ← live ← client ← backup. A room may import itself and what
# stands here; a new room must be added, so that its place is a decision. The root package exports; cli and demo join
# everything.
MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "order": {"model"},
    "filters": {"model"},
    "audit": {"model", "order"},
    "protocols": {"model", "order", "filters"},
    "runtime": {"model", "order", "protocols"},
    "brokers": {"model", "order", "protocols", "runtime"},
    "server": {"model", "order", "protocols", "runtime", "brokers"},
    "live": {"model", "order", "protocols", "runtime", "brokers", "server"},
    "client": {"model", "order", "filters", "protocols", "runtime", "brokers", "server", "live", "audit"},
    "backup": {"model", "order", "protocols", "runtime", "brokers", "server", "live", "client"},
    "pipeline": {"model", "order", "filters", "protocols", "audit", "brokers"},
    "lab": {"model", "order", "filters", "protocols", "audit"},
}
UNRESTRICTED = {"", "cli", "demo"}

# The products of a room: none imports another one. What they share is in the room's own files, or in a room below.
PRODUCTS: dict[str, set[str]] = {
    "client": {"tree", "atoms", "peers", "overlay"},
    "live": {"tree", "atoms", "peers", "overlay"},
}
# Folders that several products of a room share: they import none of them.
SHARED: dict[str, set[str]] = {"client": {"brokered", "direct"}}

# A broker is a folder that nobody outside it knows: it is found by the scheme of a URL and asked for what it can do.
BROKER_FOLDERS = [path.name for path in sorted((PACKAGE / "brokers").iterdir()) if (path / "__init__.py").is_file()]
MEMORY_IS_PUBLIC = {"brokers/__init__.py"}  # for users' own tests

# The lab is not needed to run the product: only the command line, the simulated demo and the sweep know it.
KNOW_THE_LAB = {"pipeline/sweep.py"}
COMMANDS_OF_THE_LAB = {f"cli/{name}.py" for name in ("explore", "report", "reproduce", "simulate", "sweep")}

# Third-party packages: msgspec anywhere, these only in the folder that exists for them.
THIRD_PARTY: dict[str, set[str]] = {
    "brokers": {"nats", "nkeys"},
    "cli": {"click"},
    "demo": {"click"},
    "pipeline": {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "PIL", "deltalake"},
    "runtime": {"uvloop"},
}

# The live demo is also about programs that do not use Seriatim: these talk to NATS as everybody does.
PLAIN_NATS = {"demo/checkout.py", "demo/sites.py"}

# Computes tree_model.py, whose experiments need numpy; imported only when one of them runs.
NEEDS_NUMPY = {"lab/experiments/paper001/tree_waves.py"}

# Time and random numbers are handed to a protocol, and a driver does its input and output.
PURE = ("model", "order", "filters", "protocols")
IMPURE = {"asyncio", "datetime", "logging", "random", "secrets", "selectors", "socket", "threading", "time", "uuid"}
# Timestamps are a type of values that filters compare; nobody there asks what time it is.
VALUE_TYPES = {"filters/values.py": {"datetime"}, "filters/parser.py": {"datetime"}}

# Rooms whose log lines end with their fields.
LOGS_WITH_FIELDS = {"client", "live", "server", "runtime", "brokers", "pipeline"}

# Phrases that a reader has to decode. "There are none" is plain English.
ODD_PHRASES = re.compile(
    r"so-manieth|how-manieth|held for dead|(?<!there )\bare none\b|\bis no (mode|place|way|kind)\b|\bdear\b"
    r"|\bin vain\b|\bof before\b|\bin nobody's way\b|\bleft in peace\b|\bin good order\b|\bgood to go on\b",
    re.IGNORECASE,
)

# One class name for several things is a riddle; a message that every protocol has is not.
CLASSES_OF_ONE_NAME = 3
IN_EVERY_PROTOCOL = {"Publish": "the command to publish, in each protocol's own messages"}

# `-> Any` hides a type from all callers. It is for values whose type nobody here can say.
RETURNS_ANY = {
    "audit/fitting.py": "the value of a field, of the type that the field has",
    "cli/__init__.py": "as click has it",
    "cli/common.py": "as click has it",
    "client/sync.py": "a facade: what the wrapped object returns",
    "demo/spark.py": "a session of Spark, which only the pipeline imports",
    "lab/explore/engine/checks.py": "a machine of any world, to look at",
    "lab/explore/engine/run.py": "a machine of any world, to look at",
    "pipeline/spark/files.py": "an object of the JVM",
    "runtime/tables.py": "a value of the type that an annotation says",
}

MODULES = sorted(PACKAGE.rglob("*.py"))
PROTOCOLS = sorted(
    path
    for room in ("protocols", "lab/papers")
    for path in (PACKAGE / room).iterdir()
    if path.is_dir() and path.name != "__pycache__"
)


def each(paths: list[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """A check of every file is one test, which names all the files that fail it."""

    def of(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            problems = []
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    problems.append(str(error))
            assert not problems, "\n".join(problems)

        test.__doc__ = check.__doc__
        return test

    return of


each_module = each(MODULES)
each_file = each(
    [path for folder in ("src", "tests", "bench", "soak") for path in sorted((REPOSITORY / folder).rglob("*.py"))]
)
each_test = each(sorted(TESTS.rglob("*.py")))


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
            if node.module == "seriatim":  # `from seriatim import sim` imports seriatim.lab.sim
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
    if path.relative_to(PACKAGE).as_posix() in KNOW_THE_LAB:
        allowed |= {"lab"}
    for line, name in imported(path):
        top, _, rest = name.partition(".")
        if top == "seriatim":
            target = rest.partition(".")[0]
            assert target in allowed, f"{path}:{line}: seriatim.{folder} may not import {name}"


@each_module
def test_no_product_imports_another(path: Path) -> None:
    room, *inner = path.relative_to(PACKAGE).parts
    products = PRODUCTS.get(room, set())
    if len(inner) < 2 or inner[0] not in products | SHARED.get(room, set()):
        return
    for line, name in imported(path):
        _, folder, product, *_ = (*name.split("."), "", "")
        if folder == room and product in products:
            assert product == inner[0], f"{path}:{line}: {room}.{inner[0]} may not import {name}"


@each_module
def test_the_lab_is_known_to_few(path: Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    if folder_of(path) == "lab" or name in KNOW_THE_LAB | COMMANDS_OF_THE_LAB | {"demo/simulated.py"}:
        return
    for line, module in imported(path):
        assert not module.startswith("seriatim.lab"), f"{path}:{line}: {name} may not import {module}"


@each_module
def test_a_broker_is_known_only_inside_its_folder(path: Path) -> None:
    place = path.relative_to(PACKAGE).as_posix()
    for line, name in imported(path):
        for folder in BROKER_FOLDERS:
            is_inside = place.startswith(f"brokers/{folder}/")
            is_public = folder == "memory" and place in MEMORY_IS_PUBLIC
            is_imported = f"{name}.".startswith(f"seriatim.brokers.{folder}.")
            assert is_inside or is_public or not is_imported, (
                f"{path}:{line}: imports {name}; ask the broker for a capability (brokers/capabilities.py)"
            )


@pytest.mark.parametrize("name", ["seam.py", "capabilities.py", "bulk.py"])
def test_the_seam_names_no_kind_of_broker(name: str) -> None:
    text = (PACKAGE / "brokers" / name).read_text(encoding="utf-8").lower()
    found = [word for word in ("nats", "jetstream", "kafka", "redis", "sqlite", "memorybroker") if word in text]
    assert not found, f"brokers/{name} is for every broker, and names {', '.join(found)}"


@each_module
def test_third_party_packages_stay_where_they_belong(path: Path) -> None:
    allowed = {"seriatim", "msgspec"} | THIRD_PARTY.get(folder_of(path), set())
    if path.relative_to(PACKAGE).as_posix() in PLAIN_NATS:
        allowed |= {"nats"}
    if path.relative_to(PACKAGE).as_posix() in NEEDS_NUMPY:
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


@each([path for path in MODULES if path.name == "__init__.py"])
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


@each_module
def test_private_names_of_nats_py_stay_in_one_file(path: Path) -> None:
    """nats-py may change them in any release: brokers/nats/client.py lists those that we use."""
    if not path.is_relative_to(PACKAGE / "brokers" / "nats") or path.name == "client.py":
        return
    for node in ast.walk(parse(path)):
        found = ""
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            found = node.attr if owner not in ("self", "cls") else ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            name = node.args[1]
            found = str(name.value) if isinstance(name, ast.Constant) and str(name.value).startswith("_") else ""
        line = getattr(node, "lineno", 0)
        assert not found, f"{path}:{line}: {found} is somebody else's private name; see brokers/nats/client.py"


@each_file
def test_file_is_readable_in_one_sitting(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LINES_MAX, f"{path} has {lines} lines; more than {LINES_MAX} are hard to read at once: split it"


def test_a_class_name_stands_for_few_things() -> None:
    found: dict[str, list[str]] = {}
    for path in MODULES:
        place = path.relative_to(PACKAGE).as_posix()
        if folder_of(path) == "lab":
            continue
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef) and node.name not in IN_EVERY_PROTOCOL:
                found.setdefault(node.name, []).append(f"{place}:{node.lineno}")
    many = {name: places for name, places in found.items() if len(places) > CLASSES_OF_ONE_NAME}
    assert not many, f"give each its own name: {many}"


@cache
def machines() -> set[str]:
    """The names of all classes of protocols that take steps, and of those that inherit from one."""
    classes = [
        (node, {ast.unparse(base).partition("[")[0] for base in node.bases})
        for path in sorted((PACKAGE / "protocols").rglob("*.py"))
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef)
    ]
    found = {
        node.name
        for node, _ in classes
        if any(isinstance(each, ast.FunctionDef) and each.name == "step" for each in node.body)
    }
    while more := {node.name for node, bases in classes if bases & found} - found:
        found |= more
    return found


@each([path for path in MODULES if folder_of(path) == "client"])
def test_clients_do_not_ask_which_machine_they_have(path: Path) -> None:
    assert {"Subscriber", "Publisher", "LinkedPeer", "AtomsSubscriber"} <= machines()
    for node in ast.walk(parse(path)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)} & machines()
            assert not asked, f"{path}:{node.lineno}: asks for {', '.join(asked)}; give the machines a common method"


@each_module
def test_functions_say_what_they_return(path: Path) -> None:
    if path.relative_to(PACKAGE).as_posix() in RETURNS_ANY:
        return
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            is_any = ast.unparse(node.returns).strip("'") in ("Any", "typing.Any")
            assert not is_any, f"{path}:{node.lineno}: {node.name} returns Any; say what, or why not: RETURNS_ANY"


def test_exceptions_to_typed_returns_are_needed() -> None:
    unneeded = [
        place
        for place in RETURNS_ANY
        if not any(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.returns is not None
            and ast.unparse(node.returns) == "Any"
            for node in ast.walk(parse(PACKAGE / place))
        )
    ]
    assert not unneeded, f"remove from RETURNS_ANY: {', '.join(unneeded)}"


@each_module
def test_errors_are_caught_by_name(path: Path) -> None:
    for node in ast.walk(parse(path)):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)} if node.type else {""}
        is_broad = not caught.isdisjoint({"", "Exception", "BaseException"})
        passes_on = ast.unparse(node.body[-1]) == "raise"  # a note was added, nothing was hidden
        assert passes_on or not is_broad, f"{path}:{node.lineno}: hides errors nobody thought of; name what is expected"


@each_module
def test_log_lines_carry_their_context_in_the_message(path: Path) -> None:
    """`logger.info("node started: node=%s", node)`, so that it is there with any logging; see runtime/logs.py."""
    if folder_of(path) not in LOGS_WITH_FIELDS:
        return
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("logger."):
            assert all(each.arg != "extra" for each in node.keywords), f"{path}:{node.lineno}: put it into the message"
            assert names_its_arguments(node), f"{path}:{node.lineno}: end the message with fields, such as node=%s"


def names_its_arguments(call: ast.Call) -> bool:
    """Whether a text that is written out in this call of a logger has fields for its arguments."""
    text, *arguments = call.args[ast.unparse(call.func) == "logger.log" :]
    return not isinstance(text, ast.Constant) or not arguments or "=%" in str(text.value)


@pytest.mark.parametrize(
    ("line", "is_fine"),
    [
        ('logger.info("node started: node=%s", node)', True),
        ('logger.info("node started")', True),
        ("logger.info(text, node)", True),
        ('logger.log(level, "node started: node=%s", node)', True),
        ('logger.warning("older keyword: %s", keyword)', False),
        ('logger.log(level, "node started: %s", node)', False),
    ],
)
def test_the_rule_for_log_lines_finds_arguments_without_a_name(line: str, is_fine: bool) -> None:
    call = ast.parse(line, mode="eval").body
    assert isinstance(call, ast.Call)
    assert names_its_arguments(call) == is_fine


@each(
    [
        *MODULES,
        *sorted(PACKAGE.rglob("*.md")),
        *sorted((REPOSITORY / "docs").rglob("*.md")),
        *sorted(REPOSITORY.glob("*.md")),
    ]
)
def test_texts_are_plain_english(path: Path) -> None:
    for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        found = ODD_PHRASES.search(text)
        assert found is None, f"{path}:{line}: say {found[0]!r} in plain words"


@pytest.mark.parametrize("folder", PROTOCOLS, ids=lambda path: path.name)
def test_protocol_folder_explains_itself(folder: Path) -> None:
    """A paper's algorithm as printed may be a single file; a protocol of ours is not."""
    for name in ("README.md", "messages.py") if folder.parent.name == "protocols" else ("README.md",):
        assert (folder / name).is_file(), f"{folder / name} is missing"


# A test that needs an event loop is a coroutine, and the plugin runs it. These run one themselves, and why.
OWN_LOOPS = {
    "faults/stage.py": "one loop for all tests of a file: they share a cluster",
    "live/tree/host_child.py": "a process of its own",
    "pipeline/streams.py": "blocking calls, for tests of Spark, which blocks",
    "runtime/journal/child.py": "a process of its own",
    "runtime/journal/test_segment.py": "what becomes of a thread when its loop is gone",
}


# A broker made for the tests, which polls a file as its real one would.
POLLS = {"brokers/sqlite/broker.py"}


@each_test
def test_tests_wait_for_something_and_not_for_a_time(path: Path) -> None:
    if path.name != "waiting.py" and path.relative_to(TESTS).as_posix() not in POLLS:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("asyncio.sleep", "time.sleep", "sleep"):
                time = node.args[0]
                is_number = isinstance(time, ast.Constant) and time.value != 0
                is_constant = (
                    isinstance(time, ast.Name | ast.Attribute) and ast.unparse(time).rpartition(".")[2].isupper()
                )
                assert not (is_number or is_constant), (
                    f"{path}:{node.lineno}: wait until something is so: tests/waiting.py"
                )


@each_test
def test_tests_are_coroutines_and_run_no_loop(path: Path) -> None:
    if path.relative_to(TESTS).as_posix() not in OWN_LOOPS:
        for node in ast.walk(parse(path)):
            starts = isinstance(node, ast.Attribute) and ast.unparse(node) in ("asyncio.run", "asyncio.Runner")
            assert not starts, f"{path}:{getattr(node, 'lineno', 0)}: write `async def test_…` instead"


def test_limits_of_time_name_files_that_exist() -> None:
    missing = [name for name in LIMITS_S if not (REPOSITORY / name).is_file()]
    assert not missing, f"remove from LIMITS_S in conftest.py: {', '.join(missing)}"
