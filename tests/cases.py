"""Cases of random tests: a few in the quick run, all of them in the long one."""

from collections.abc import Iterable
from typing import Any

import pytest


def some_of(cases: Iterable[Any], count: int) -> list[Any]:
    """For `parametrize`: the first ones as they are, the others marked long."""
    return [case if place < count else pytest.param(case, marks=pytest.mark.long) for place, case in enumerate(cases)]
