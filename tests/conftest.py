"""Settings shared by all tests."""

import random

import pytest
from hypothesis import settings

from tests.certificates import Certificates

# No deadline: a busy machine is not a bug. The seed below replays a failure; the blob replays its smallest example.
settings.register_profile("seriatim", deadline=None, print_blob=True)
settings.load_profile("seriatim")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give every run one seed for property tests, so that a failure can be replayed by the line printed below."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().getrandbits(32))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who runs what, when several processes share the tests: the pipeline's go to one, so that Spark is started once.

    Otherwise a file stays together: its tests may share a server.
    """
    for item in items:
        file = item.location[0]
        item.add_marker(pytest.mark.xdist_group("spark" if file.startswith("tests/pipeline/") else file))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how to replay each failed property test."""
    for report in terminalreporter.getreports("failed"):
        if "hypothesis" in report.keywords:
            replay = f"python -m pytest '{report.nodeid}' --hypothesis-seed={config.option.hypothesis_seed}"
            terminalreporter.write_line(f"replay: {replay}")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for TLS, made once."""
    return Certificates(tmp_path_factory.mktemp("certificates"))
