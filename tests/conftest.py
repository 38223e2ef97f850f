"""Settings shared by all tests."""

import fcntl
import logging
import random
from collections import Counter
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from tests.certificates import Certificates

# No deadline: a busy machine is not a bug. The seed below replays a failure; the blob replays its smallest example.
settings.register_profile("seriatim", deadline=None, print_blob=True)
settings.load_profile("seriatim")

# Limits of time for tests that may take more than a minute on a machine that something else keeps busy. Everything else
# may not.
LONG_S = 1_200.0
SPARK_S = 600.0  # the first one starts Spark; an audit of five rows is a hundred small queries
PROCESSES_S = 300.0  # a cluster of processes, one after the other or under load, with faults that last seconds
INTERLEAVINGS_S = 180.0  # every interleaving of a small world, and nothing waits
LIMITS_S = {
    **dict.fromkeys(
        (
            "tests/cli/test_backup.py",
            "tests/cli/test_broker.py",
            "tests/cli/test_cluster.py",
            "tests/cli/test_live.py",
            "tests/cli/test_moving.py",
            "tests/cli/test_nodes.py",
            "tests/cli/test_order.py",
            "tests/cli/test_peer.py",
            "tests/cli/test_piped.py",
            "tests/demo/test_live.py",
            "tests/faults/test_launch.py",
            "tests/faults/test_moves.py",
            "tests/faults/test_nodes.py",
            "tests/faults/test_refusals.py",
            "tests/faults/test_rows.py",
            "tests/faults/test_soak.py",
            "tests/faults/test_standby_faults.py",
            "tests/faults/test_ticket_faults.py",
            "tests/faults/test_tree_faults.py",
            "tests/live/tree/test_healing_elsewhere.py",
        ),
        PROCESSES_S,
    ),
    **dict.fromkeys(
        (
            "tests/lab/explore/test_atoms.py",
            "tests/lab/explore/test_cli.py",
            "tests/lab/explore/test_overlay.py",
            "tests/lab/explore/test_swarm.py",
            "tests/lab/explore/test_variants.py",
            "tests/lab/explore/test_vcube.py",
            "tests/lab/explore/test_vcube_variants.py",
            "tests/lab/explore/test_worlds.py",
        ),
        INTERLEAVINGS_S,
    ),
    "tests/client/test_fork.py": 180.0,  # forks, and the processes that they start
    "tests/brokers/nats/test_cluster.py": 180.0,  # three servers die, and replicas catch up
    "tests/brokers/nats/journal/test_cluster.py": 180.0,
    "tests/live/overlay/test_processes.py": 180.0,
    "tests/live/peers/test_processes.py": 180.0,
}

# What waits for processes and answers comes first. What only computes fills the rest, in small files: no tail remains.
WAITS = ("faults/", "demo/", "cli/", "test_docs.py", "deploy/", "brokers/", "live/", "client/", "runtime/", "server/")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give every run one seed for property tests, so that a failure can be replayed by the line printed below."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().getrandbits(32))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Of the processes that share the tests, the first one compiles them all; the others wait, and need not."""
    with (session.config.rootpath / "pyproject.toml").open() as compiled:
        try:
            fcntl.flock(compiled, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(compiled, fcntl.LOCK_SH)  # closing it lets go
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Which process runs which tests, and in which order: the longest come first.

    A file stays together: its tests may share a server. The files that use Spark are together, too. In the quick run,
    a second process that starts it would take more processor time than it saves; most long tests use it, and are dealt
    to two.
    """
    spark = Counter(file_of(item) for item in items if "spark" in getattr(item, "fixturenames", ()))
    dealt = [0] * (2 if config.option.markexpr == "long" else 1)
    groups = {}
    for file, count in spark.most_common():
        place = dealt.index(min(dealt))
        dealt[place] += count
        groups[file] = f"spark {place}"
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups.get(file_of(item), file_of(item))))
        if item.get_closest_marker("timeout") is None and (limit_s := limit_of(item)):
            item.add_marker(pytest.mark.timeout(limit_s))
    items.sort(key=lambda item: (file_of(item) not in spark, place_of(file_of(item))))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Notice a pytest-xdist that does not group: every file would start its server in every process."""
    if getattr(session.config.option, "loadgroup", False):  # set by pytest-xdist in the processes that run tests
        alone = [item.nodeid for item in session.items if "@" not in item.nodeid]
        if alone:
            raise pytest.UsageError(f"pytest-xdist ignores the group of {alone[0]}: pin versions that fit")


def limit_of(item: pytest.Item) -> float | None:
    """How long this test may take, if that is not the limit of pyproject.toml."""
    if item.get_closest_marker("long"):
        return LONG_S
    if "spark" in getattr(item, "fixturenames", ()):
        return SPARK_S
    return LIMITS_S.get(file_of(item))


def place_of(file: str) -> int:
    """Of a file in the order of files: one for each word of WAITS, and one behind them."""
    name = file.removeprefix("tests/")
    return next((place for place, start in enumerate(WAITS) if name.startswith(start)), len(WAITS))


def file_of(item: pytest.Item) -> str:
    return item.location[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how to replay each failed property test."""
    for report in terminalreporter.getreports("failed"):
        if "hypothesis" in report.keywords:
            replay = f"python -m pytest '{report.nodeid}' --hypothesis-seed={config.option.hypothesis_seed}"
            terminalreporter.write_line(f"replay: {replay}")


@pytest.fixture(autouse=True)
def unconfigured_logging() -> Iterator[None]:
    """Undo what a command under test did to our logger, or the next test sees each record twice or not at all."""
    yield
    package = logging.getLogger("seriatim")
    for handler in [handler for handler in package.handlers if type(handler).__module__.startswith("seriatim.")]:
        package.removeHandler(handler)
    package.propagate = True
    package.setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for TLS, made once."""
    return Certificates(tmp_path_factory.mktemp("certificates"))
