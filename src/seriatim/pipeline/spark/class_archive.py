"""Spark's classes, kept in the form in which a JVM uses them: then it is ready in half the time.

Most of the time until Spark's first answer goes into loading and checking some twenty thousand classes. Java can write
them down as a JVM ends and map them into the next one (class data sharing). `make` does that once, as it installs;
elsewhere: `python -m seriatim.pipeline.spark.class_archive`. Without the archive, or with that of another Java,
everything works, and starts as slowly as Spark does.
"""

import os
import sys
import tempfile
from pathlib import Path
from subprocess import TimeoutExpired

from seriatim.model import Delivery, History, Publication, Subscription
from seriatim.pipeline.spark.requirements import RequirementMissing, find_java, java_version

EXIT_S = 300  # for a JVM to write its classes down


def archive_path() -> Path | None:
    """Where the classes are kept: in the virtual environment that holds this Spark. None if there is none."""
    import pyspark

    java = find_java()
    if sys.prefix == sys.base_prefix or java is None or " " in sys.prefix:  # options are split at spaces
        return None
    return Path(sys.prefix) / "var" / "seriatim" / f"spark-{pyspark.__version__}-java-{java_version(java)}.jsa"


def sharing_options(path: Path | None) -> str:
    """What a JVM is told so that it uses the classes of this file, if it is there and fits."""
    if path is None or not path.exists():
        return ""
    # An archive that does not fit is passed over; the JVM would say so on standard output, among our own.
    return f"-XX:SharedArchiveFile={path} -Xlog:disable -Xlog:all=error:stderr"


def make_archive(path: Path) -> None:
    """Audit a small log, so that what a job needs is loaded, and have the JVM write it down as it ends."""
    from pyspark import SparkContext

    from seriatim.audit import write_history
    from seriatim.pipeline.audit import audit_tables
    from seriatim.pipeline.logs import read_tables
    from seriatim.pipeline.spark.session import SparkOptions, spark_session

    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    flags = f"-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={beside}"
    options = SparkOptions(memory="1g", shuffle_partitions=2, java_options=flags)
    with tempfile.TemporaryDirectory(prefix="seriatim-classes-") as folder:
        write_history(_disagreement(), folder)
        with spark_session(options, "class archive") as spark:
            audit_tables(read_tables(spark, folder))
    jvm = SparkContext._gateway.proc  # type: ignore[union-attr]  # it was started just now
    jvm.stdin.close()
    try:
        jvm.wait(EXIT_S)
    except TimeoutExpired:
        jvm.kill()
        beside.unlink(missing_ok=True)
        raise
    beside.replace(path)


def _disagreement() -> History:
    """Two subscribers that disagree, so that every part of an audit is used."""
    rows = [Delivery(s, i, e, e.upper(), 1) for s, events in (("s1", "ab"), ("s2", "ba")) for i, e in enumerate(events)]
    publications = [Publication(e, e.upper(), "p", sequence=i, seen=0, number=1) for i, e in enumerate("ab")]
    return History(rows, publications, [Subscription(s, t, 0, start=0) for s in ("s1", "s2") for t in "AB"])


def main() -> int:
    """Make the archive unless it is there; say so where it cannot be made."""
    path = archive_path()
    if path is None:
        print("no virtual environment or no Java: Spark's classes are not kept", file=sys.stderr)
        return 1
    if path.exists():
        return 0
    try:
        make_archive(path)
    except (OSError, RequirementMissing, TimeoutExpired) as error:
        print(f"Spark's classes are not kept: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
