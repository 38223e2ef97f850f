"""The parts of a report, as plain data: `sources.py` fills it from files, `html/` makes a page of it."""

from typing import TypeAlias

from msgspec import Struct, field

from seriatim.audit import Anomaly, Report, Verdict
from seriatim.pipeline.report.figures import RunFigures


class Judgement(Struct, frozen=True, kw_only=True):
    """The result of an audit, for the guarantees that were asked for."""

    verdicts: dict[str, Verdict]
    anomalies: tuple[Anomaly, ...]
    counts: dict[str, int]
    deliveries: int
    subscribers: int
    events: int
    shared: int
    out_of_order: int

    @classmethod
    def of(cls, report: Report) -> "Judgement":
        return cls(**{name: getattr(report, name) for name in cls.__struct_fields__})

    @property
    def answer(self) -> str:
        """The worst answer of all verdicts."""
        answers = {verdict.answer for verdict in self.verdicts.values()}
        return next((word for word in ("invalid", "unknown") if word in answers), "valid")


class RunSection(Struct, frozen=True, kw_only=True):
    """A run, from its logs: verdicts and figures. `figures` is None if only the audit's result is there."""

    name: str
    judgement: Judgement
    figures: RunFigures | None = None
    note: str = ""  # how it was read


class Measurement(Struct, frozen=True, kw_only=True):
    """One point of an experiment, over all its seeds. `paper`: the value the paper states, if it states one here."""

    experiment: str
    variant: str
    x: float | str
    measure: str
    mean: float
    std: float = 0.0
    count: int = 1
    paper: float | None = None
    paper_low: float | None = None  # the band, if it is not the usual tenth
    paper_high: float | None = None


class Comparison(Struct, frozen=True, kw_only=True):
    """One statement of the paper, and ours. `verdict`: within, outside, or not measured."""

    point: str
    paper: str
    ours: str
    band: str
    verdict: str
    reason: str = ""


class Experiment(Struct, frozen=True, kw_only=True):
    """The measurements, and the paper's statements about them. What is not known is empty."""

    id: str
    title: str = ""
    citation: str = ""
    x: str = "x"
    places: tuple[str, ...] = ()  # the values of x, as text
    measures: dict[str, str] = field(default_factory=dict)  # what each measure is
    comparisons: tuple[Comparison, ...] = ()


class SweepSection(Struct, frozen=True, kw_only=True):
    name: str
    measurements: tuple[Measurement, ...]
    experiments: dict[str, Experiment] = field(default_factory=dict)
    failures: tuple[tuple[str, str], ...] = ()  # (row, why it has no result)


class TreeNode(Struct, frozen=True, kw_only=True):
    name: str
    parent: str | None = None
    site: str = ""
    topics: int = 0
    load_per_s: float | None = None


class Shape(Struct, frozen=True, kw_only=True):
    """A tree with its homes, and its expected cost. `tree` says what kind of tree it is."""

    name: str
    tree: str = ""
    nodes: tuple[TreeNode, ...] = ()
    hops_per_event: float | None = None


class Coupling(Struct, frozen=True, kw_only=True):
    """Two topics that must be ordered against each other, what that costs, and who causes it."""

    first: str
    second: str
    subscribers: int
    entries_per_s: float | None = None


class PlanSection(Struct, frozen=True, kw_only=True):
    """Where topics should live: before, after, and the least that any plan could cost."""

    name: str
    before: Shape | None
    after: Shape
    others: tuple[Shape, ...] = ()  # placements that it was compared with
    bound_per_event: float | None = None
    load_max_per_s: float | None = None
    couplings: tuple[Coupling, ...] = ()
    advice: tuple[str, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)


Section: TypeAlias = RunSection | SweepSection | PlanSection


class Page(Struct, frozen=True, kw_only=True):
    """A whole report. `made_at` is text that the caller chooses."""

    title: str
    sections: tuple[Section, ...]
    made_at: str = ""
    made_by: str = ""
