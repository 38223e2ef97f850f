"""Each anomaly, put into a history on purpose, is called by its name."""

from random import Random

import pytest

from seriatim.audit import ANOMALIES, audit
from tests.audit.stories import tell
from tests.audit.test_against_oracle import faulty_history
from tests.audit.worlds import sound_history


@pytest.mark.parametrize("name", ANOMALIES)
def test_the_story_is_named_and_nothing_else_is(name: str) -> None:
    for seed in range(50):
        history = sound_history(Random(seed))
        tell(name, history, Random(seed))
        report = audit(history)
        assert set(report.counts) == {name}, f"seed {seed}: {report}"


@pytest.mark.parametrize("name", ANOMALIES)
def test_the_story_is_named_whatever_else_is_wrong(name: str) -> None:
    for seed in range(50):
        history, _ = faulty_history(seed)
        tell(name, history, Random(seed))
        # A gap cannot be told where ids or numbers contradict each other, as some faults make them do.
        assert name in audit(history).counts or name == "gap", f"seed {seed}"
