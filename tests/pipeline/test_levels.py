"""What a subscriber is usually late by, from times that differ in more than that."""

import numpy as np

from seriatim.pipeline.audit.levels import Floats, Ids, usual_delays


def rows(delays: list[float], events: int, seed: int = 1) -> tuple[Ids, Ids, Floats]:
    """Each event is received by about half of the subscribers, each later by its own delay."""
    chance = np.random.default_rng(seed)
    who, what = np.nonzero(chance.random((len(delays), events)) < 0.5)
    return who.astype(np.int64), what.astype(np.int64), 10.0 * what + np.asarray(delays)[who]


def differences(delays: Floats) -> Floats:
    return np.asarray(delays - delays[0], np.float64)


def test_constant_delays_are_found_up_to_a_common_one() -> None:
    delays = [5.0, 25.0, 11.0, 7.5, 300.0]
    names, found = usual_delays(*rows(delays, 500))
    assert names.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(differences(found), differences(np.asarray(delays)), atol=0.01)


def test_one_that_was_away_for_a_while_is_judged_by_its_other_days() -> None:
    who, what, times = rows([5.0, 25.0, 11.0], 900)
    away = (who == 1) & (what < 200)
    times[away] = 3_600_000.0
    _, found = usual_delays(who, what, times)
    np.testing.assert_allclose(differences(found), [0.0, 20.0, 6.0], atol=0.01)


def test_subscribers_that_agree_with_each_other_are_brought_to_agree_with_the_rest() -> None:
    """Each holds ten of 100 topics: medians alone leave some of them apart, who then take the rest for unusual."""
    for seed in range(5):
        chance = np.random.default_rng(seed)
        delays = 5.0 + 20.0 * chance.random(100)
        holds = np.argsort(chance.random((100, 100)), axis=1) < 10
        topics = chance.integers(0, 100, 20_000)
        who, what = np.nonzero(holds[:, topics])
        times = np.cumsum(chance.random(len(topics)))[what] + delays[who]
        names, found = usual_delays(who.astype(np.int64), what.astype(np.int64), times)
        assert len(names) == 100
        np.testing.assert_allclose(differences(found), differences(delays), atol=1e-6)


def test_what_is_not_known_has_no_delay() -> None:
    who, what, times = rows([5.0, 25.0, 7.0], 50)
    times[who == 1] = np.nan
    names, found = usual_delays(who, what, times)
    assert names.tolist() == [0, 2]
    np.testing.assert_allclose(differences(found), [0.0, 2.0], atol=0.01)
    names, found = usual_delays(who[:0], what[:0], times[:0])
    assert not len(names) and not len(found)
