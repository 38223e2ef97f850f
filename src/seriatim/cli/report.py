"""`seriatim report`: runs, experiments and plans as one page."""

import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from seriatim.cli.audit.input import choose_engine, engine_option, guarantee_option, mapping_of, mapping_options
from seriatim.cli.common import many, notice, show_json, show_progress, write_whole
from seriatim.cli.spark import session_of, spark_is_there, spark_options
from seriatim.model import InputError
from seriatim.order import GUARANTEES
from seriatim.pipeline.report import Page, Section, render
from seriatim.pipeline.report.pages import Experiment
from seriatim.pipeline.report.sources import kind_of, name_of, read_audit, read_plan, read_run, read_sweep


@click.command
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE…")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"), help="The page to write."
)
@click.option("--png", type=click.Path(path_type=Path, file_okay=False), help="Write each figure here as PNG, too.")
@click.option("--title", help="Title of the page.  [default: names of the sources]")
@guarantee_option
@click.option("--limit", type=click.IntRange(min=1), default=4, help="Witnesses shown of each anomaly.")
@engine_option
@mapping_options
@click.option("--open", "is_opened", is_flag=True, help="Open the page in a browser.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
@spark_options
def command(
    sources: tuple[str, ...],
    out: Path,
    png: Path | None,
    title: str | None,
    guarantees: tuple[str, ...],
    limit: int,
    engine: str,
    is_opened: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Make one page of runs, experiments and plans.

    The page is a single HTML file without scripts that loads nothing: open it, print it, send it. A SOURCE is

    \b
      a run         a folder with deliveries (and, if known, publications, subscriptions and messages), or one
                    .jsonl or .csv file of deliveries: verdicts with their witnesses, latencies, stamps, rates
      an audit      what `seriatim audit --json` printed: verdicts with their witnesses
      experiments   a folder that `seriatim reproduce` or `seriatim sweep` wrote: figures beside the paper's numbers
      a plan        a folder that `seriatim plan` wrote: trees, hops per event, load and couplings, before and after

    Several sources become sections of one page. Small runs are read without Spark; Parquet, URIs such as s3a://… and
    large logs are read with it. Logs of other systems are read as by `seriatim audit`: options map their columns to
    fields.

    \b
    Examples:
      seriatim report run/
      seriatim report run/ --guarantee tno --guarantee completeness --out run.html --open
      seriatim report consumer-logs/ --subscriber host --event topic,partition,offset --order-by handled_at
      seriatim report before/ after/ plan/ figures/ --title "What the plan changed" --png figures-png/

    \b
    Exit code: 0 the page was written (whatever it says), 2 a source cannot be read.
    """
    if png is not None and find_spec("PIL") is None:
        raise InputError("--png", "needs Pillow, which is not installed", 'pip install "seriatim[spark]"')
    asked = guarantees or tuple(GUARANTEES)
    try:
        sections = _read(sources, asked, limit, engine, options)
    finally:
        show_progress("")
    page = Page(
        title=title or _title(sources),
        sections=tuple(sections),
        made_at=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
        made_by=f"Seriatim {version('seriatim')}",
    )
    html, drawings = render(page)
    with _writing(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    with _writing(out):
        write_whole(out, html)
    if png is not None:
        from seriatim.pipeline.report.drawing.png import write_png

        with _writing(png):
            png.mkdir(parents=True, exist_ok=True)
        for index, (key, drawing) in enumerate(drawings.items(), start=1):
            show_progress(f"drawing {index} of {len(drawings)}")
            write_png(drawing, png / f"{key}.png")
    show_progress("")
    if as_json:
        pngs = [str(png / f"{key}.png") for key in drawings] if png is not None else []
        show_json({"page": str(out), "bytes": len(html.encode()), "sections": len(sections), "png": pngs})
    else:
        beside = f" and {len(drawings)} PNGs in {png}" if png is not None else ""
        click.echo(f"{out}: {many(len(sections), 'section')}, {many(len(drawings), 'figure')}{beside}")
    if is_opened and not webbrowser.open(out.resolve().as_uri()):
        notice(f"no browser was found; open {out.resolve()} yourself")


def _read(
    sources: tuple[str, ...], asked: tuple[str, ...], limit: int, engine: str, options: dict[str, Any]
) -> list[Section]:
    """One section for each source. All sources are checked before anything starts."""
    mapping = mapping_of(options)
    kinds = [(source, kind_of(source, mapping.is_foreign)) for source in sources]
    is_spark = {source: _is_for_spark(source, engine) for source, kind in kinds if kind == "run"}
    sections: list[Section] = []
    with ExitStack() as stack:
        session: Any = None
        if any(is_spark.values()):
            show_progress("starting Spark")
            session = stack.enter_context(session_of(options, "report"))
            session.sparkContext.setLogLevel("OFF")  # we report an error once, without its stack
        for source, kind in kinds:
            show_progress(f"reading {source}")
            if kind == "audit":
                sections.append(read_audit(source, asked))
            elif kind == "sweep":
                sections.append(read_sweep(source, name_of(source), _described))
            elif kind == "plan":
                sections.append(read_plan(source, name_of(source)))
            elif is_spark[source]:
                from seriatim.pipeline.report.spark import read_run_on_spark

                sections.append(read_run_on_spark(session, source, asked, limit, mapping))
            else:
                sections.append(read_run(source, asked, limit, mapping))
    return sections


def _is_for_spark(source: str, engine: str) -> bool:
    """Whether Spark reads this log. A log that is only large can be read without Spark, if Spark cannot run here."""
    choice = choose_engine(source, engine)
    if choice.engine == "python" or choice.is_needed:
        return choice.engine == "spark"
    return spark_is_there(f"{source}, {choice.reason}: Spark would be faster, but")


def _title(sources: tuple[str, ...]) -> str:
    names = [name_of(source) for source in sources]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Name the path in the error if it cannot be written."""
    try:
        yield
    except OSError as error:
        problem = error.strerror or "cannot be written"
        raise InputError(str(path), problem, "check the path and its permissions") from None


def _described(id: str) -> Experiment:
    """What is known about an experiment; of one that is not registered, only its id."""
    from seriatim.lab.experiments import experiments

    found = experiments().get(id)
    if found is None:
        return Experiment(id=id)
    places = [str(value) for axis in found.axes if axis.name == found.x for value in (*axis.quick, *axis.full)]
    return Experiment(
        id=id,
        title=found.title,
        citation=found.citation,
        x=found.x.replace("_", " "),
        places=tuple(places),
        measures=dict(found.measures),
    )
