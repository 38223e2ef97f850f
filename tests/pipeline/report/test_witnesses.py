"""Witnesses as lanes: every anomaly has its picture, and the picture shows just the rows of the proof."""

import pytest

from seriatim.audit import ANOMALIES, Anomaly, audit
from seriatim.model import Delivery, History, Placement, Publication, Subscription
from seriatim.pipeline.report.drawing.lanes import COLUMNS_MAX, draw_lanes
from seriatim.pipeline.report.drawing.shapes import Label, Line, Mark
from seriatim.pipeline.report.drawing.witnesses import Picture, picture_of
from tests.pipeline.report.cases import anomalous

CASES = [(name, history) for name, histories in anomalous().items() for history in histories]


def found(name: str, history: History) -> Anomaly:
    return next(anomaly for anomaly in audit(history).anomalies if anomaly.name == name)


def picture(name: str, case: int = 0) -> Picture:
    drawn = picture_of(found(name, anomalous()[name][case]))
    assert drawn is not None
    return drawn


def test_there_is_a_case_for_every_anomaly() -> None:
    assert {name for name, _ in CASES} == set(ANOMALIES)


@pytest.mark.parametrize(("name", "history"), CASES, ids=[name for name, _ in CASES])
def test_every_anomaly_is_drawn(name: str, history: History) -> None:
    anomaly = found(name, history)
    drawn = picture_of(anomaly)
    assert drawn is not None
    drawing = draw_lanes(drawn)
    assert drawing is not None
    assert drawing.description == anomaly.sentence
    labels = [shape.text for shape in drawing.shapes if isinstance(shape, Label)]
    for row in anomaly.witness:
        assert not isinstance(row, Placement)
        who = row.publisher if isinstance(row, Publication) else row.subscriber
        assert who in labels, "each has a lane"
        if isinstance(row, Delivery | Publication):
            assert row.event_id in labels
        else:
            assert isinstance(row, Subscription) and any(f"held {row.topic}" in text for text in labels)
    assert any(getattr(shape, "tone", "") == "wrong" for shape in drawing.shapes), "what is wrong is marked"
    for shape in drawing.shapes:
        points = shape.points if hasattr(shape, "points") else (shape.at,)
        assert all(0 <= x <= drawing.width and 0 <= y <= drawing.height for x, y in points), shape


def test_lines_of_an_inversion_cross() -> None:
    drawing = draw_lanes(picture("inversion"))
    assert drawing is not None
    one, other = [shape.points for shape in drawing.shapes if isinstance(shape, Line) and shape.tone == "wrong"]
    (one_above, one_below), (other_above, other_below) = (
        sorted(points, key=lambda point: point[1]) for points in (one, other)
    )
    assert one_above[0] < other_above[0] and one_below[0] > other_below[0]


def test_the_same_event_looks_the_same() -> None:
    drawing = draw_lanes(picture("inversion"))
    assert drawing is not None
    looks = [(mark.shape, mark.tone) for mark in drawing.shapes if isinstance(mark, Mark)]
    assert looks[0] == looks[3] != looks[1] == looks[2]


def test_a_cycle_is_a_staircase_that_turns_back() -> None:
    drawn = picture("cycle", 1)
    assert len(drawn.lanes) == 4
    assert [spot.column for spot in drawn.spots] == [0, 1, 1, 2, 2, 3, 3, 4]
    back = drawn.links[-1]
    assert back.kind == "back"
    assert drawn.spots[back.start].event_id == drawn.spots[back.end].event_id
    assert drawn.spots[back.start].column > drawn.spots[back.end].column


def test_a_gap_is_hollow_and_inside_what_was_held() -> None:
    drawn = picture("gap")
    (hollow,) = [spot for spot in drawn.spots if spot.is_hollow]
    assert (drawn.lanes[hollow.lane], hollow.event_id) == ("s1", "a2")
    (span,) = drawn.spans
    assert span.lane == hollow.lane and span.start < hollow.column < span.end


def test_a_phantom_is_outside_of_what_was_held() -> None:
    for case in (2, 3):
        drawn = picture("phantom", case)
        (spot,) = drawn.spots
        assert drawn.spans
        assert not any(span.start <= spot.column <= span.end for span in drawn.spans)


def test_causes_run_to_the_right() -> None:
    for case in range(3):
        drawn = picture("causal-inversion", case)
        for link in drawn.links:
            assert drawn.spots[link.start].column < drawn.spots[link.end].column
        late = drawn.spots[-1]
        assert late.is_wrong and late.event_id == "a1" and drawn.lanes[late.lane] == "s1"


def test_a_witness_of_another_kind_is_not_drawn() -> None:
    row = Delivery("s1", 0, "a", "A")
    for name in (*ANOMALIES, "some-later-anomaly"):
        anomaly = Anomaly(name, "?", (Subscription("s1", "A", 0),) * 5)
        assert picture_of(anomaly) is None
    assert picture_of(Anomaly("inversion", "?", (row,))) is None


def test_a_very_long_chain_of_causes_is_told_in_words_only() -> None:
    rows: list[Publication | Delivery] = [Delivery("s", 0, "z", "A"), Delivery("s", 1, "a", "A")]
    rows += [Publication("a" if i == 0 else f"e{i}", "A", f"p{i}") for i in range(COLUMNS_MAX)]
    drawn = picture_of(Anomaly("causal-inversion", "long", tuple(rows)))
    assert drawn is not None
    assert draw_lanes(drawn) is None
