"""Figures of a run: quantiles that are as exact as promised, and the same from rows in memory and on Spark."""

from itertools import combinations
from math import inf, nan
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from seriatim.audit import write_history
from seriatim.model import Delivery, History, Message, Publication
from seriatim.pipeline.logs import tables_of
from seriatim.pipeline.report.drawing import png
from seriatim.pipeline.report.drawing.axes import NOTHING
from seriatim.pipeline.report.drawing.charts import distribution_chart
from seriatim.pipeline.report.drawing.png import write_png
from seriatim.pipeline.report.drawing.shapes import Drawing, Label, Line, text_width
from seriatim.pipeline.report.figures import Distribution, distribution_of, figures_of, steps_over
from seriatim.pipeline.report.sources import read_run
from seriatim.pipeline.report.spark import read_run_on_spark, spark_figures
from tests.pipeline.report.cases import HOSTILE, timed_history, whole_page


def known(values: list[float], is_whole: bool = False) -> Distribution:
    distribution = distribution_of(values, is_whole)
    assert distribution is not None
    return distribution


@pytest.mark.parametrize("seed", range(5))
def test_quantiles_are_within_a_hundredth(seed: int) -> None:
    random = Random(seed)
    values = sorted(random.lognormvariate(2, 3) for _ in range(random.randint(1, 3000)))
    distribution = known(values)
    for share in (0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = values[max(0, -int(-share * len(values) // 1) - 1)]
        assert distribution.quantile(share) == pytest.approx(exact, rel=0.0101)
    assert distribution.mean == pytest.approx(sum(values) / len(values))
    assert (distribution.count, distribution.lowest, distribution.highest) == (len(values), values[0], values[-1])


def test_small_whole_numbers_are_exact() -> None:
    values = [float(value) for value in range(50)]
    assert [value for value, _ in known(values, is_whole=True).values()] == values


@pytest.mark.parametrize(
    "values",
    [
        [12.5] * 80 + [31.0] * 80,  # half of all values are the lowest one
        [0.0] * 90 + [67.2] * 8 + [188.0] * 2,
        [1.0] * 60 + [1.5] * 36 + [100.0] * 4,
        [1.0] * 60 + [20.0] * 36 + [25.0] * 4,
        [float(value) for value in range(100)],
        [5.0],
    ],
    ids=["lowest", "zero", "near", "close", "even", "one"],
)
def test_names_of_quantiles_stand_apart(values: list[float]) -> None:
    """No name lies over another one, over a number of the axis, or under a line."""
    distribution = distribution_of(values)
    assert distribution is not None
    drawing = distribution_chart("Time", distribution, "time", lambda value: f"{value:g} ms", "rows")
    names = []
    for shape in drawing.shapes:
        if isinstance(shape, Label) and not shape.is_upright:
            width = text_width(shape.text, shape.size)
            left = shape.at[0] - {"start": 0.0, "middle": width / 2, "end": width}[shape.anchor]
            names.append((shape.text, left, left + width, shape.at[1] - 8, shape.at[1]))
    for (one, *one_box), (other, *other_box) in combinations(names, 2):
        apart = one_box[0] >= other_box[1] or other_box[0] >= one_box[1]
        assert apart or one_box[2] >= other_box[3] or other_box[2] >= one_box[3], f"{one} over {other}"
    for shape in drawing.shapes:
        if isinstance(shape, Line) and shape.is_dashed:
            (place, _), (_, end) = shape.points
            for name, left, right, _, low in names:
                assert not (left < place < right and low > end + 1 and low < 40), f"a line through {name}"


def test_nothing_zero_and_less_are_kept_apart() -> None:
    assert distribution_of([]) is None
    assert distribution_of([nan, inf]) is None
    distribution = known([-5.0, -1.0, 0.0, 0.0, 3.0, inf])
    assert (distribution.count, distribution.negative) == (5, 2)
    assert distribution.quantile(0.2) == -5.0
    assert distribution.quantile(0.6) == 0.0


@pytest.mark.parametrize(("first", "last"), [(0.0, 0.0), (5.0, 65.0), (1.7e12, 1.7e12 + 3.6e6), (-3.0, 0.001)])
def test_a_timeline_has_a_bounded_number_of_steps(first: float, last: float) -> None:
    start, step, steps = steps_over(first, last)
    assert start == first and 1 <= steps <= 61
    assert start + step * steps >= last


def random_history(random: Random) -> History:
    """Rows as other systems write them: some times, stamps and publications are not recorded."""

    def maybe(value: float) -> float | None:
        return value if random.random() < 0.8 else None

    events = [(f"e{i}", f"T{random.randrange(4)}", 10 * random.random() * i) for i in range(60)]
    deliveries = []
    for subscriber in range(random.randint(1, 30)):
        for position, (event_id, topic, at) in enumerate(random.sample(events, random.randint(1, 40))):
            row = Delivery(f"s{subscriber}", position, event_id, topic, None)
            late = random.expovariate(0.01) - (3 if random.random() < 0.1 else 0)
            row = replace(row, received_at=maybe(at + late), notified_at=maybe(at + late * random.random() * 2))
            if random.random() < 0.7:
                row = replace(row, stamp={f"T{i}": i for i in range(random.randrange(5))})
            deliveries.append(replace(row, out_of_order=random.random() < 0.1))
    publications = [Publication(*event[:2], "p", maybe(event[2])) for event in events if random.random() < 0.9]
    messages = [Message("r", "a", "b", random.choice(["Ticket", "Stamped"]), random.randrange(99)) for _ in range(20)]
    return History(deliveries, publications, messages=messages)


def test_spark_counts_the_same(spark: SparkSession) -> None:
    bare = History([Delivery("s", i, f"e{i}", HOSTILE) for i in range(3)])
    for history in (random_history(Random(11)), bare):
        counted, expected = spark_figures(tables_of(spark, history)), figures_of(history)
        for field in expected.__struct_fields__:
            mine, theirs = getattr(counted, field), getattr(expected, field)
            if isinstance(theirs, Distribution):  # sums of floats, in another order
                assert mine.total == pytest.approx(theirs.total)
                mine, theirs = replace(mine, total=0.0), replace(theirs, total=0.0)
            assert mine == theirs, field


def test_every_figure_can_be_a_png(tmp_path: Path) -> None:
    from PIL import Image

    from seriatim.pipeline.report import render

    _, drawings = render(whole_page(f"$\\frac 名 {HOSTILE}"))
    kinds = {key.rstrip("-0123456789"): drawing for key, drawing in drawings.items()}
    assert len(kinds) > 15
    for index, (key, drawing) in enumerate(kinds.items()):
        path = tmp_path / f"{index}.png"
        write_png(drawing, path)
        with Image.open(path) as pixels:
            assert pixels.size == (round(drawing.width * 2), round(drawing.height * 2))
            assert min(pixels.convert("L").tobytes()) < 230, f"{key} is blank"


def test_pngs_need_no_font_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.setattr(png, "FONTS", {False: ("none.ttf",), True: ()})
    shapes = (Label((20.0, 15.0), f"5 µs {NOTHING} 7 µs"), Label((10.0, 30.0), "share", is_upright=True, is_bold=True))
    write_png(Drawing(title="t", description="", width=90, height=40, shapes=shapes), tmp_path / "built-in.png")
    with Image.open(tmp_path / "built-in.png") as pixels:
        assert pixels.size == (180, 80) and min(pixels.convert("L").tobytes()) < 100


@pytest.mark.long
def test_a_run_on_spark_makes_the_same_section(spark: SparkSession, tmp_path: Path) -> None:
    history = timed_history()
    history.deliveries[3], history.deliveries[4] = (
        replace(history.deliveries[4], position=3),
        replace(history.deliveries[3], position=4),
    )
    write_history(history, tmp_path / "run")
    here, there = read_run(str(tmp_path / "run")), read_run_on_spark(spark, str(tmp_path / "run"))
    assert there.judgement.anomalies, "an inversion"
    assert there.judgement == here.judgement
    assert there.name == here.name == "run"
    assert there.figures is not None and here.figures is not None
    assert there.figures.topics == here.figures.topics
