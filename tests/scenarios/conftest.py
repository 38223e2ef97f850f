"""`python -m pytest tests/scenarios --rewrite` writes what happened into the transcripts instead of comparing."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the output of every scenario into its transcript")
