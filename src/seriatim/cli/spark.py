"""The options that the commands on Spark share. Imports no Spark: help and mistakes need none."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click
from msgspec import structs

from seriatim.cli.common import add_options, notice, pairs_in

spark_options = add_options(
    click.option(
        "--master",
        envvar="SERIATIM_MASTER",
        default="local[*]",
        help="Where Spark runs: local[*], spark://host:7077, yarn, k8s://… (environment: SERIATIM_MASTER).",
    ),
    click.option("--memory", default="4g", help="Memory of Spark's driver."),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's; may be given again."),
)


def spark_is_there(otherwise: str) -> bool:
    """Whether Spark can run on this machine. If not, say so: `otherwise`, and what is missing."""
    from seriatim.pipeline.spark.requirements import RequirementMissing, check_requirements

    try:
        check_requirements()
    except RequirementMissing as missing:
        notice(f"{otherwise} {missing}")
        return False
    return True


@contextmanager
def session_of(options: dict[str, Any], name: str, is_small: bool = False) -> Iterator[Any]:
    """A SparkSession as the options of a command say. What this machine lacks is said before anything starts.

    `is_small`: little data, so that starting is most of the work: then few partitions, and the quick compiler only.
    """
    from seriatim.pipeline.spark.requirements import check_requirements

    given = pairs_in("--conf", options["conf"], "a setting", "KEY=VALUE")
    settings = {key.strip(): value.strip() for key, value in given}
    check_requirements()
    from seriatim.pipeline.spark.session import SparkOptions, spark_session

    chosen = SparkOptions(master=options["master"], memory=options["memory"], settings=settings)
    if is_small and chosen.is_local:
        chosen = structs.replace(chosen, shuffle_partitions=2, java_options="-XX:TieredStopAtLevel=1")
    with ExitStack() as stack:
        with _quiet_start():
            session = stack.enter_context(spark_session(chosen, f"seriatim {name}"))
        yield session


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Hide what the JVM writes to stderr at its start, and show it only if the JVM does not start."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)  # the JVM inherits it, and keeps it
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(kept, said.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
