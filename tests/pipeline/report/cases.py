"""The common part of the tests of reports: a log for every anomaly, a page with everything, and a strict reader of
HTML."""

from collections.abc import Iterator
from html.parser import HTMLParser

from seriatim.audit import audit
from seriatim.model import Delivery, History, Message, Publication, Subscription
from seriatim.pipeline.report import figures_of
from seriatim.pipeline.report.pages import (
    Comparison,
    Coupling,
    Experiment,
    Judgement,
    Measurement,
    Page,
    PlanSection,
    RunSection,
    Shape,
    SweepSection,
    TreeNode,
)

HOSTILE = "<script>alert('x')</script>\"><img src=http://127.0.0.1:9/x onerror=alert(1)>&\u202e\x00\x1b$x^2$"
VOID = {"meta", "br", "hr", "wbr"}


def log(**notified: str) -> list[Delivery]:
    """`s1="a1 b1"`: s1 was notified of a1 on topic A, then of b1 on topic B."""
    return [
        Delivery(name, position, word, word[0].upper())
        for name, words in notified.items()
        for position, word in enumerate(words.split())
    ]


def anomalous() -> dict[str, list[History]]:
    """For each anomaly, histories that have it."""
    published = [Publication("a1", "A", "p", sequence=0), Publication("a2", "A", "p", sequence=1)]
    numbered = [Publication(f"a{n}", "A", "p", sequence=n, number=n) for n in (1, 2, 3)]
    question, reply = Publication("a1", "A", "p", seen=0), Publication("b1", "B", "s2", seen=1)
    own = Publication("a1", "A", "s1", seen=0)
    return {
        "fifo-inversion": [History(log(s1="a2 a1"), published)],
        "fifo-inversion-across-topics": [
            History(log(s1="b1 a1"), [published[0], Publication("b1", "B", "p", sequence=1)])
        ],
        "causal-inversion": [
            History(log(s1="b1 a1", s2="a1"), [question, reply]),
            History(log(s1="b1 a1", s2="a1"), [own, reply]),  # its own event, overtaken by the answer to it
            History(log(s1="c1 a1", s2="a1", s3="b1"), [question, reply, Publication("c1", "C", "s3", seen=1)]),
        ],
        "topic-inversion": [History(log(s1="a1 b1 a2", s2="a2 a1"))],
        "inversion": [History(log(s1="a1 c1 c2 b1", s2="b1 c3 a1"))],
        "cycle": [
            History(log(s1="a1 b1", s2="b1 c1", s3="c1 a1")),
            History(log(s1="a1 b1", s2="b1 c1", s3="c1 d1", s4="d1 a1")),
        ],
        "duplicate": [History(log(s1="a1 b1 a1"))],
        "phantom": [
            History(log(s1="a1 a2"), [Publication("a1", "A", "p")]),
            History(log(s1="a1 b1"), subscriptions=[Subscription("s1", "A", 0)]),
            History(log(s1="a1 a2 a3"), subscriptions=[Subscription("s1", "A", 0, 1), Subscription("s1", "A", 2)]),
            History(log(s1="a1 a2"), subscriptions=[Subscription("s1", "A", 0, 0), Subscription("s1", "A", 1, 9)]),
        ],
        "reused-id": [History([Delivery("s1", 0, "x", "A"), Delivery("s2", 0, "x", "B")])],
        "number-mismatch": [
            History([Delivery("s1", 0, "a1", "A", number=1), Delivery("s2", 0, "a2", "A", number=1)]),
            History([Delivery("s1", 0, "a1", "A", number=1), Delivery("s2", 0, "a1", "A", number=2, index=3)]),
        ],
        "gap": [
            History(
                [Delivery("s1", 0, "a1", "A", number=1), Delivery("s1", 1, "a3", "A", number=3)],
                numbered,
                [Subscription("s1", "A", 0, start=0)],
            ),
            History(
                [Delivery("s1", 0, "a1", "A", number=1), Delivery("s2", 0, "a2", "A", number=2)],
                subscriptions=[Subscription("s1", "A", 0, 1, start=0, end=2), Subscription("s2", "A", 0, start=1)],
            ),
        ],
    }


def timed_history(name: str = "orders") -> History:
    """A run with everything recorded."""
    publications = [Publication(f"e{i}", name, "p", 10.0 * i, i, 0, i + 1) for i in range(50)]
    deliveries = [
        Delivery(s, i, f"e{i}", name, i + 1, {"other": 1} if i % 3 else {}, 10.0 * i + 5, 10.0 * i + 5 + i % 7, i == 9)
        for s in ("s1", "s2")
        for i in range(50)
    ]
    messages = [Message("r", "p", "n", "Ticket", 40 + i) for i in range(9)]
    return History(deliveries, publications, [Subscription(s, name, 0, start=0) for s in ("s1", "s2")], messages)


def run_section(history: History, name: str = "a run") -> RunSection:
    return RunSection(name=name, judgement=Judgement.of(audit(history)), figures=figures_of(history))


def sweep_section(name: str = "000") -> SweepSection:
    rows = [
        Measurement(
            experiment=f"{name}-fig7",
            variant=variant,
            x=x,
            measure="entries",
            mean=scale * x**0.5,
            std=scale,
            count=3,
            paper=46.0 if (variant, x) == (f"chain {name}", 2000.0) else None,
        )
        for variant, scale in ((f"chain {name}", 1.0), (f"star {name}", 0.5))
        for x in (10.0, 100.0, 2000.0)
    ]
    rows += [
        Measurement(experiment=f"{name}-fig11", variant=v, x=f"server {i}", measure="share", mean=i / 5, paper=i / 4)
        for v in ("flat", "skewed")
        for i in (1, 2, 3)
    ]
    told = Comparison(point=f"at {name}", paper="46", ours="45 ± 1", band="± 10 %", verdict="within", reason=name)
    experiments = {f"{name}-fig7": Experiment(id=f"{name}-fig7", title=f"sizes {name}", x=name, comparisons=(told,))}
    failures = ((name, f"no result for {name}"),)
    return SweepSection(name=name, measurements=tuple(rows), experiments=experiments, failures=failures)


def plan_section(name: str = "plan") -> PlanSection:
    def nodes(topics: int) -> tuple[TreeNode, ...]:
        return (
            TreeNode(name=name, site="hub", topics=topics, load_per_s=50.0),
            TreeNode(name=f"{name} eu", parent=name, site="eu", topics=3, load_per_s=700.0),
            TreeNode(name=f"{name} us", parent=name, site="us", topics=4, load_per_s=20.0),
        )

    return PlanSection(
        name=name,
        before=Shape(name="before", nodes=nodes(9), hops_per_event=3.0),
        after=Shape(name="after", nodes=nodes(2), hops_per_event=1.0),
        others=(Shape(name=name, hops_per_event=2.0),),
        bound_per_event=0.5,
        load_max_per_s=600.0,
        couplings=(Coupling(first=name, second="B", subscribers=3, entries_per_s=1.5),),
        advice=(f"if they dropped {name}",),
        facts={name: "1"},
    )


def whole_page(name: str) -> Page:
    """Everything that can be on a page, with `name` wherever a name can be."""
    mixed = [
        RunSection(name=name, judgement=Judgement.of(audit(renamed(history, name))), note=name)
        for histories in anomalous().values()
        for history in histories
    ]
    return Page(
        title=name,
        sections=(run_section(timed_history(name), name), *mixed, sweep_section(name), plan_section(name)),
        made_at=name,
        made_by=name,
    )


def renamed(history: History, name: str) -> History:
    """The same, with names that begin with `name`."""

    def longer(text: str) -> str:
        return f"{name} {text}"

    def row(given: Delivery | Publication | Subscription) -> dict[str, object]:
        fields = {field: getattr(given, field) for field in given.__struct_fields__}
        texts = {"subscriber", "event_id", "topic", "publisher"} & fields.keys()
        return fields | {field: longer(str(fields[field])) for field in texts}

    return History(
        [Delivery(**row(one)) for one in history.deliveries],  # type: ignore[arg-type]
        [Publication(**row(one)) for one in history.publications],  # type: ignore[arg-type]
        [Subscription(**row(one)) for one in history.subscriptions],  # type: ignore[arg-type]
    )


class Reader(HTMLParser):
    """Reads a page strictly: every element is closed by its own end, and everything that is there is remembered."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> closes <{self._open[-1:]}> at {self.getpos()}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.words.append(data)

    def named(self, tag: str) -> Iterator[dict[str, str]]:
        return (attributes for name, attributes in self.elements if name == tag)
