"""`seriatim pipeline`: write a Spark Declarative Pipeline that keeps a log audited."""

from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import click

from seriatim.audit.rules import format_of
from seriatim.cli.audit.input import mapping_of, mapping_options
from seriatim.model import InputError

SPEC = """\
# raw → validated → audited. Run it here with: spark-pipelines run
name: seriatim-audit
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""

# A catalog that a second run finds again: Hive's, in an embedded database. A platform has its own.
DEFAULTS = """\
spark.sql.catalogImplementation    hive
spark.sql.warehouse.dir            {folder}/warehouse
spark.hadoop.javax.jdo.option.ConnectionURL    jdbc:derby:;databaseName={folder}/metastore;create=true
spark.driver.extraJavaOptions      -Dderby.system.home={folder}
spark.sql.session.timeZone         UTC
spark.sql.shuffle.partitions       16
spark.ui.enabled                   false
"""

TABLES = '''\
"""raw → validated → audited. Each function is a table; change or add what you like."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from seriatim.audit import ColumnMapping
from seriatim.pipeline import declarative

spark = SparkSession.active()
MAPPING = {mapping}
plan = declarative.Plan(spark, {uri!r}, {format!r}, MAPPING)


@dp.table
def raw_deliveries() -> DataFrame:
    return plan.raw()


@dp.materialized_view
def deliveries() -> DataFrame:
    return plan.validated(spark.read.table("raw_deliveries"))


@dp.materialized_view
def refused() -> DataFrame:
    return plan.refused(spark.read.table("raw_deliveries"))


@dp.materialized_view
def audited() -> DataFrame:
    return declarative.audited(spark.read.table("deliveries"))


@dp.materialized_view
def verdicts() -> DataFrame:
    return declarative.verdicts(spark.read.table("audited"), spark.read.table("refused"))


@dp.materialized_view
def anomalies() -> DataFrame:
    return declarative.anomalies(spark.read.table("audited"))
'''


@click.command
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--input", "uri", required=True, metavar="URI", help="Folder of delivery files: a path or a URI.")
@click.option(
    "--format", "format_", type=click.Choice(["jsonl", "parquet"]), default="jsonl", help="Format of the files."
)
@mapping_options
def command(folder: Path, uri: str, format_: str, **options: Any) -> None:
    """Write a Spark Declarative Pipeline that keeps a log audited.

    Makes FOLDER with a spec and the definitions of six tables: raw_deliveries (what the files hold), deliveries (the
    rows that fit), refused (the others, with why), audited, verdicts and anomalies. `spark-pipelines run` in that
    folder brings them up to date. Needs the extra `pipelines`.

    \b
    Examples:
      seriatim pipeline my-audit --input /data/consumer-logs/ --subscriber host --event msg_id
      cd my-audit && SPARK_CONF_DIR=conf spark-pipelines run

    \b
    Exit code: 0 written, 2 wrong options.
    """
    mapping = mapping_of(options)
    mapping.check_for_tables()
    if format_of(uri) not in (None, format_):
        problem = f"{uri} is not {format_}, judging by its name"
        raise InputError("--input", problem, "give --format parquet, or files of JSON lines")
    if folder.exists():
        raise InputError(str(folder), "is there already", "give another name, or remove it")
    place = folder.resolve()
    if not urlparse(uri).scheme:
        uri = Path(uri).resolve().as_uri()
    (place / "transformations").mkdir(parents=True)
    (place / "conf").mkdir()
    shown = f"ColumnMapping({', '.join(_arguments(mapping))})"
    (place / "spark-pipeline.yml").write_text(SPEC.format(storage=(place / "storage").as_uri()))
    (place / "conf" / "spark-defaults.conf").write_text(DEFAULTS.format(folder=place))
    (place / "transformations" / "tables.py").write_text(TABLES.format(mapping=shown, uri=uri, format=format_))
    click.echo(f"{folder} is ready: cd {folder} && SPARK_CONF_DIR=conf spark-pipelines run")


def _arguments(mapping: Any) -> list[str]:
    """The mapping as it would be written by hand: only what differs from the default."""
    plain = type(mapping)()
    names = mapping.__struct_fields__
    return [f"{name}={getattr(mapping, name)!r}" for name in names if getattr(mapping, name) != getattr(plain, name)]
