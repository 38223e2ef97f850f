"""The levels of holders: kept by counting, they are what looking at every subscription gives."""

from random import Random

from seriatim.order import LevelTable, SequencingTree, level

TREE = SequencingTree(
    {"n1": None, "n2": "n1", "n3": "n2", "n4": "n2"}, {"A": "n3", "B": "n3", "C": "n4", "D": "n2", "E": "n1"}
)


def test_the_level_is_the_highest_meeting_node() -> None:
    assert level(TREE, "n3", []) == level(TREE, "n3", "A") == level(TREE, "n3", "AB") == "n3"
    assert level(TREE, "n3", "AC") == level(TREE, "n3", "ACD") == "n2"
    assert level(TREE, "n3", "ABCDE") == "n1"
    assert level(TREE, "n2", "CD") == "n2"
    assert level(TREE, "n3", ["A", "unknown"]) == "n3"


def test_counting_gives_the_same_as_looking() -> None:
    for seed in range(200):
        random = Random(seed)
        table = LevelTable(TREE, "n3", lambda topic: TREE.home(topic) == "n3")
        held: dict[int, frozenset[str]] = {}
        for _ in range(30):
            who = random.randrange(4)
            after = frozenset(topic for topic in "ABCDE" if random.random() < 0.4)
            table.change(held.get(who, frozenset()), after)
            held[who] = after
            for topic in "AB":
                levels = {level(TREE, "n3", each) for each in held.values() if topic in each}
                assert table.of(topic) == tuple(sorted(levels)), f"seed {seed}"
            assert table.of("C") == ()
