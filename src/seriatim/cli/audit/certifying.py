"""`seriatim audit --order-log`: compare a run with the order log, beside an audit or in place of one."""

from typing import TYPE_CHECKING, Any

import click

from seriatim.audit import CERTIFICATE, CERTIFIED, Certificate, certify
from seriatim.audit.order_log import check_ranges
from seriatim.cli.audit.input import Choice, choose_engine
from seriatim.cli.common import add_options
from seriatim.model import History, InputError, Placement

if TYPE_CHECKING:
    from seriatim.pipeline.logs import Tables

METHODS = {
    (False, False): "audit",
    (True, False): "certificate (deliveries against the order log) and audit (deliveries alone)",
    (True, True): "certificate (deliveries against the order log)",
}

certificate_options = add_options(
    click.option(
        "--order-log",
        metavar="URI",
        help="Also compare with this order log (.jsonl, .csv, .parquet; a file or a folder): rows position, topic, "
        "first, last, as `seriatim order --json` prints them.",
    ),
    click.option(
        "--certificate-only",
        is_flag=True,
        help="With --order-log: make only this comparison, which is faster. It judges per-topic, tno and acyclic.",
    ),
)


def check_certificate(options: dict[str, Any], guarantees: tuple[str, ...]) -> None:
    """Refuse options that do not go together."""
    if options["order_log"] is None:
        if options["certificate_only"]:
            raise InputError("--certificate-only", "needs an order log", "add --order-log, or leave it out")
        return
    if options["follow"]:
        fix = "follow without it, and compare with the order log when the run is over"
        raise InputError("--order-log", "a run that is followed has no end, and neither has its order log", fix)
    if options["certificate_only"]:
        for name in guarantees:
            if name not in CERTIFIED:
                fix = f"leave --certificate-only out; it judges {', '.join(CERTIFIED)}"
                raise InputError("--guarantee", f"the certificate does not judge {name}", fix)


def requested_of(options: dict[str, Any], requested: list[str]) -> list[str]:
    """What is asked for: the certificate, and the guarantees that are judged."""
    if options["order_log"] is None:
        return requested
    return [CERTIFICATE, *(name for name in requested if name in CERTIFIED or not options["certificate_only"])]


def method_of(options: dict[str, Any]) -> str:
    """The name of the method in the report."""
    return METHODS[options["order_log"] is not None, options["certificate_only"]]


def engine_for_both(choice: Choice, order_log: str | None, wanted: str) -> Choice:
    """The engine for a log and its order log: Spark if one of them needs it."""
    if order_log is None or wanted != "auto":
        return choice
    other = choose_engine(order_log, wanted)
    if choice.engine == other.engine == "python":
        return choice
    chosen = max((choice, other), key=lambda each: (each.engine == "spark", each.is_needed))
    is_needed = choice.is_needed or other.is_needed
    return Choice(chosen.engine, chosen.reason, is_needed, choice.is_small and other.is_small)


def certify_on_spark(
    tables: "Tables", history: History | None, order: Any, limit: int, rows_max: int, where: str
) -> Certificate:
    """The certificate of tables; by the plain one if log (`history`) and order log are small."""
    from seriatim.pipeline.audit import certify_tables
    from seriatim.pipeline.schemas import PLACEMENTS

    if history is not None:
        rows = order.select(*PLACEMENTS.names).limit(rows_max + 1).collect()
        if len(rows) <= rows_max:
            placements = [Placement(*row) for row in rows]
            check_ranges(placements, where)
            return certify(history.deliveries, placements, limit, history.lost)
    return certify_tables(tables, order, limit, where=where)[""]
