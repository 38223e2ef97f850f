"""A tree of boxes: of many stored boxes, find those that a point or another box can meet, without looking at the rest.

The allowed values of a filter form a *box*: for each attribute a lowest and a highest value. The tree cuts the space of
boxes in two again and again, as a trie does, at a bit of the code of one lower or upper bound (values.py has the
codes). Each branch cuts at the most significant bit in which its boxes differ, so the shape of the tree depends on what
is stored and hardly on the order in which it came: nothing is ever rebuilt, adding and removing touch one path, and a
path is no longer than the bits of the codes however unlucky the values are. Therefore it is a trie and not a balanced
tree: balancing boxes means rebuilding, and a broker must not pause.

Each node knows how far its boxes reach (`lows`, `highs`), and a search goes only where a box may be met. The answer is
candidates: codes may be equal where values are not, and a box may have holes. The caller compares values.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

LEAF_MAX = 16  # boxes that are searched linearly
_DIMENSIONS_MAX = 64  # lower and upper bounds of as many attributes as a filter may have

Codes: TypeAlias = tuple[int, ...]  # low, high of each attribute by turns; high is one that no value of the box exceeds
Condition: TypeAlias = tuple[int, int, int]  # (attribute, a, b): a box is met only if its low ≤ a and its high ≥ b


class Boxed(Protocol):
    """A stored object: anything with the codes of its box."""

    @property
    def codes(self) -> Codes: ...


B = TypeVar("B", bound=Boxed)


class _BoxNode(Generic[B]):
    """`example` are the codes of a box that is, or was, below this node: all others agree with it in every bit that is
    more significant than where this node cuts."""

    __slots__ = ("example", "highs", "lows")

    def __init__(self, example: Codes, lows: list[int], highs: list[int]) -> None:
        self.example, self.lows, self.highs = example, lows, highs

    def reach(self, codes: Codes) -> None:
        """Include one more box."""
        for i, low in enumerate(self.lows):
            if codes[2 * i] < low:
                self.lows[i] = codes[2 * i]
        for i, high in enumerate(self.highs):
            if codes[2 * i + 1] > high:
                self.highs[i] = codes[2 * i + 1]


class _Leaf(_BoxNode[B]):
    """Few boxes, or any number with the same codes (`is_uniform`): there is no bit to cut them at."""

    __slots__ = ("boxes", "is_uniform")

    def __init__(self, boxes: list[B]) -> None:
        columns = list(zip(*(box.codes for box in boxes), strict=True))
        super().__init__(boxes[0].codes, list(map(min, columns[::2])), list(map(max, columns[1::2])))
        self.boxes = boxes
        self.is_uniform = False

    def remove(self, box: B) -> None:
        """Remove a box. The order is not kept, and the bounds are computed again only if they may change."""
        place = next(i for i, each in enumerate(self.boxes) if each is box)
        self.boxes[place] = self.boxes[-1]
        self.boxes.pop()
        if self.boxes and not self.is_uniform:
            tight: _Leaf[B] = _Leaf(self.boxes)
            self.lows, self.highs = tight.lows, tight.highs


class _Branch(_BoxNode[B]):
    """Boxes whose code `dimension` has the bit unset are below, the others above. `rank` says how significant it is."""

    __slots__ = ("above", "below", "bit", "dimension", "rank")

    def __init__(self, rank: int, bit: int, below: _BoxNode[B], above: _BoxNode[B]) -> None:
        super().__init__(
            below.example, list(map(min, below.lows, above.lows)), list(map(max, below.highs, above.highs))
        )
        self.rank, self.bit, self.below, self.above = rank, bit, below, above
        self.dimension = _dimension(rank)


class BoxTree(Generic[B]):
    """Boxes over the same attributes. `visited` counts what the last search looked at: nodes, and boxes of leaves."""

    __slots__ = ("_offsets", "_root", "count", "visited")

    def __init__(self, boxes: Iterable[B] = ()) -> None:
        self._root: _BoxNode[B] | None = None
        self._offsets: list[int] | None = None
        self.count = 0
        self.visited = 0
        for box in boxes:
            self.add(box)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[B]:
        for boxes in self.search(()):
            yield from boxes

    def add(self, box: B) -> None:
        """Store a box."""
        self.count += 1
        codes = box.codes
        parent: _Branch[B] | None = None
        is_above = False
        node = self._root
        while isinstance(node, _Branch):
            rank = self._rank(node.example, codes)
            if rank > node.rank:  # outside of everything below this node: a new cut above it
                bit = (node.example[_dimension(rank)] ^ codes[_dimension(rank)]).bit_length() - 1
                leaf: _Leaf[B] = _Leaf([box])
                pair = (node, leaf) if codes[_dimension(rank)] >> bit & 1 else (leaf, node)
                self._put(parent, is_above, _Branch(rank, bit, *pair))
                return
            node.reach(codes)
            parent, is_above = node, bool(codes[node.dimension] >> node.bit & 1)
            node = node.above if is_above else node.below
        if node is None:
            self._put(parent, is_above, _Leaf([box]))
            return
        assert isinstance(node, _Leaf)
        node.boxes.append(box)
        node.reach(codes)
        node.is_uniform = node.is_uniform and codes == node.example
        if len(node.boxes) > LEAF_MAX and not node.is_uniform:
            self._put(parent, is_above, self._split(node))

    def remove(self, box: B) -> None:
        """Forget a box that is stored; the very object."""
        path: list[_Branch[B]] = []
        node = self._root
        while isinstance(node, _Branch):
            path.append(node)
            node = node.above if box.codes[node.dimension] >> node.bit & 1 else node.below
        assert isinstance(node, _Leaf), "remove what was added"
        node.remove(box)
        self.count -= 1
        if not node.boxes and not path:
            self._root = None
        elif not node.boxes:
            last = path.pop()
            rest = last.below if node is last.above else last.above
            self._put(path[-1] if path else None, bool(path) and path[-1].above is last, rest)
        for branch in reversed(path):
            branch.lows = list(map(min, branch.below.lows, branch.above.lows))
            branch.highs = list(map(max, branch.below.highs, branch.above.highs))

    def search(self, conditions: Sequence[Condition]) -> Iterator[list[B]]:
        """All boxes that meet the conditions, and some that do not, a leaf at a time."""
        self.visited = 0
        stack = [] if self._root is None else [self._root]
        while stack:
            node = stack.pop()
            self.visited += 1
            lows, highs = node.lows, node.highs
            for i, a, b in conditions:
                if lows[i] > a or highs[i] < b:
                    break
            else:
                if isinstance(node, _Branch):
                    stack.append(node.above)
                    stack.append(node.below)
                else:
                    assert isinstance(node, _Leaf)
                    self.visited += len(node.boxes)
                    yield node.boxes

    def _put(self, parent: _Branch[B] | None, is_above: bool, node: _BoxNode[B]) -> None:
        if parent is None:
            self._root = node
        elif is_above:
            parent.above = node
        else:
            parent.below = node

    def _split(self, leaf: _Leaf[B]) -> _BoxNode[B]:
        """Divide a leaf into two where its codes differ most. Returns the leaf itself if all codes are equal."""
        example = leaf.example = leaf.boxes[0].codes  # one that is still there, so that both sides get something
        if self._offsets is None:
            # Attributes have codes of different widths and vary in different bits. What varies most in the first
            # boxes counts as equally significant in all of them, so that cuts go through them by turns.
            first = [box.codes for box in leaf.boxes]
            self._offsets = [max((codes[i] ^ example[i]).bit_length() for codes in first) for i in range(len(example))]
        rank = max(self._rank(example, box.codes) for box in leaf.boxes)
        if rank == 0:
            leaf.is_uniform = True
            return leaf
        dimension = _dimension(rank)
        bit = max((example[dimension] ^ box.codes[dimension]).bit_length() for box in leaf.boxes) - 1
        below = [box for box in leaf.boxes if not box.codes[dimension] >> bit & 1]
        above = [box for box in leaf.boxes if box.codes[dimension] >> bit & 1]
        return _Branch(rank, bit, _Leaf(below), _Leaf(above))

    def _rank(self, one: Codes, other: Codes) -> int:
        """How significant the most significant bit is in which two boxes differ, and in which dimension; 0 for none."""
        assert self._offsets is not None, "ranks are needed only once there was something to split"
        best = 0
        if one != other:
            for i, offset in enumerate(self._offsets):
                difference = one[i] ^ other[i]
                if difference:
                    rank = (difference.bit_length() - offset + _LIFT) * _DIMENSIONS_MAX + _DIMENSIONS_MAX - 1 - i
                    if rank > best:
                        best = rank
        return best


_LIFT = 1024  # more than any code has bits, so that ranks are positive


def _dimension(rank: int) -> int:
    return _DIMENSIONS_MAX - 1 - rank % _DIMENSIONS_MAX
