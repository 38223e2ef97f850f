"""What a paper states, as data with its citation, and how ours is compared with it.

A fact is judged on the results of all seeds: `within` its band, `outside`, or not measured when the grid that was run
lacks its points. Where ours is outside, `reason` says why; docs/figures.md shows the experiment behind the reason.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from seriatim.lab.experiments.results import Results, Sample, Where

BAND = 0.10  # "same" unless the fact says otherwise


class Judgement(Struct, frozen=True):
    """Ours beside the paper's. `is_within` is None where nothing was measured."""

    ours: str
    is_within: bool | None


Judge: TypeAlias = Callable[[Results], Judgement]


class Fact(Struct, frozen=True, kw_only=True):
    """One statement of a paper. `measure`, `where` and `value` are set where it is one number of one point."""

    point: str
    paper: str
    band: str
    judge: Judge
    citation: str = ""
    reason: str = ""
    measure: str | None = None
    where: Where | None = None
    value: float | None = None

    def states(self, measure: str, where: Where) -> float | None:
        """The paper's number for this point, if this fact is about it."""
        is_this = self.measure == measure and self.where is not None and self.where.items() <= where.items()
        return self.value if is_this else None


NOT_MEASURED = Judgement("not measured", None)


def shown(sample: Sample) -> str:
    """Mean ± half the width of its 95 % interval over seeds."""
    if sample.count == 1:
        return f"{_number(sample.mean)} (one seed)"
    return f"{_number(sample.mean)} ± {_number(sample.half_width)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def same(point: str, value: float, measure: str, where: Where, *, band: float = BAND, **more: str) -> Fact:
    """The paper states a number, and ours must be within `band` of it."""

    def judge(results: Results) -> Judgement:
        sample = results.sample(measure, where)
        if sample is None:
            return NOT_MEASURED
        return Judgement(shown(sample), abs(sample.mean - value) <= band * abs(value))

    text = f"± {band:.0%}" if value else "exactly"
    return _fact(point, _number(value), text, judge, measure, where, value, more)


def at_least(point: str, bound: float, measure: str, where: Where, **more: str) -> Fact:
    """The paper states that it is more than this."""

    def judge(results: Results) -> Judgement:
        sample = results.sample(measure, where)
        return NOT_MEASURED if sample is None else Judgement(shown(sample), sample.mean >= bound)

    return _fact(point, f"> {_number(bound)}", "at least", judge, measure, where, None, more)


def at_most(point: str, bound: float, measure: str, where: Where, **more: str) -> Fact:
    """The paper states that it is less than this."""

    def judge(results: Results) -> Judgement:
        sample = results.sample(measure, where)
        return NOT_MEASURED if sample is None else Judgement(shown(sample), sample.mean <= bound)

    return _fact(point, f"< {_number(bound)}", "at most", judge, measure, where, None, more)


def at(**point: str | int | float) -> Where:
    """The parameters of one point."""
    return point


# A judge looks at what was measured and answers with a text and whether that is within the paper's statement.
Verdict: TypeAlias = Callable[..., tuple[str, bool]]


def means(measure: str, points: Sequence[Where], verdict: Verdict) -> Judge:
    """Judge the means at these points, which `verdict` gets one by one."""

    def judge(results: Results) -> Judgement:
        found = [sample.mean for point in points if (sample := results.sample(measure, point)) is not None]
        return NOT_MEASURED if len(found) < len(points) else Judgement(*verdict(*found))

    return judge


def curve(measure: str, x: str, where: Where, needs: Collection[float] | int, verdict: Verdict) -> Judge:
    """Judge a curve that has these values of x, or so many of any."""

    def judge(results: Results) -> Judgement:
        found: dict[Any, float] = results.curve(measure, x, where)
        is_there = len(found) >= needs if isinstance(needs, int) else found.keys() >= set(needs)
        return Judgement(*verdict(found)) if is_there else NOT_MEASURED

    return judge


def curves(measure: str, x: str, one: Where, other: Where, verdict: Verdict) -> Judge:
    """Judge two curves where both have a point and the second is above 0: `verdict` gets the values of both."""

    def judge(results: Results) -> Judgement:
        first, second = results.curve(measure, x, one), results.curve(measure, x, other)
        both = [at for at in first if second.get(at, 0.0) > 0.0]
        return Judgement(*verdict([first[at] for at in both], [second[at] for at in both])) if both else NOT_MEASURED

    return judge


def ratio(measure: str, of: Where, to: Where, value: float, *, less_one: bool = False) -> Judge:
    """One point's mean as a multiple of another's; `less_one`: by how much it is more."""

    def judge(results: Results) -> Judgement:
        above, below = results.sample(measure, of), results.sample(measure, to)
        if above is None or below is None or not below.mean:
            return NOT_MEASURED
        ours = above.mean / below.mean
        text = f"{ours - 1.0:+.1%}" if less_one else f"{ours:.2f} times"
        return Judgement(text, abs(ours - value) <= BAND * value)

    return judge


def shape(point: str, paper: str, band: str, judge: Judge, *, citation: str = "", reason: str = "") -> Fact:
    """The paper states how a curve runs; `judge` says whether ours does."""
    return Fact(point=point, paper=paper, band=band, judge=judge, citation=citation, reason=reason)


def _fact(
    point: str,
    paper: str,
    band: str,
    judge: Judge,
    measure: str,
    where: Where,
    value: float | None,
    more: dict[str, str],
) -> Fact:
    return Fact(point=point, paper=paper, band=band, judge=judge, measure=measure, where=where, value=value, **more)
