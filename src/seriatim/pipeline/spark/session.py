"""The Spark session of a job: opened at the edge, handed to pure functions, closed by whoever opened it.

The defaults suit one machine: no web page, quiet, UTC, few shuffle partitions (adaptive execution joins small ones),
the Python that runs this also on the executors, and traffic on loopback only. What the user says wins, in
spark-defaults.conf too (`settings.py`); on a cluster (`--master spark://…`, `yarn`, `k8s://…`) little else is set.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from seriatim.model import SeriatimError
from seriatim.pipeline.spark.class_archive import archive_path, sharing_options
from seriatim.pipeline.spark.master import check_master
from seriatim.pipeline.spark.requirements import check_requirements
from seriatim.pipeline.spark.settings import Setting, own_settings, resolve

LOCAL = "local[*]"
MEMORY = "4g"
QUIET = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n
"""


class SparkFailed(SeriatimError):
    """Spark did not start; the message says why, in one line."""


class SparkOptions(Struct, frozen=True, kw_only=True):
    """Where a job runs and with how much. `settings` are Spark's own, and win."""

    master: str = LOCAL
    memory: str | None = None  # of the driver, which on `local` is all there is, and then 4g unless the user says more
    executor_memory: str | None = None  # of each executor, on a cluster
    shuffle_partitions: int = 16  # on `local`, unless the user says more
    java_options: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")


@contextmanager
def spark_session(options: SparkOptions | None = None, name: str = "seriatim") -> Iterator[SparkSession]:
    """A session for one job. One that is already active (a notebook's) is used as it is, and left open."""
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    session = open_session(options or SparkOptions(), name)
    try:
        yield session
    finally:
        session.stop()


def open_session(options: SparkOptions, name: str = "seriatim") -> SparkSession:
    """Start Spark; raises `RequirementMissing` if it cannot run here."""
    check_requirements()
    check_master(options.master)
    if options.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: SparkSession.Builder = SparkSession.builder.master(options.master).appName(name)
    for setting in settings_of(options):
        builder = builder.config(setting.key, setting.value)
    if options.is_local:
        return builder.getOrCreate()
    try:
        return builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise SparkFailed(f"no session on {options.master}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """What ended the start of a session. Spark says that it has stopped, and not why: its master did not answer."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    java = getattr(error, "java_exception", None)
    if java is not None:
        text = str(java.toString()).partition("\n")[0]
    if "stopped SparkContext" in text or "NullPointerException" in text or "unresponsive" in text:
        return "the master does not answer; is this its address, and its Spark of the same version?"
    return text[:300]


def settings_of(options: SparkOptions) -> list[Setting]:
    """What a session is given, with who says so."""
    chosen = {"spark.driver.memory": options.memory, "spark.executor.memory": options.executor_memory}
    given = {key: value for key, value in chosen.items() if value is not None}
    return resolve(options.settings, given, _preferred(options) if options.is_local else {}, own_settings())


def _preferred(options: SparkOptions) -> dict[str, str]:
    """What suits one machine."""
    quiet = f"-Dlog4j2.configurationFile={_quiet_file()}"
    java_options = [quiet, _collector(options), _sharing(options), options.java_options]
    return {
        "spark.sql.shuffle.partitions": str(options.shuffle_partitions),
        "spark.driver.memory": MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(filter(None, java_options)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "seriatim-warehouse"),
    }


def _collector(options: SparkOptions) -> str:
    """A job is measured by when it is done: short pauses, which the default collector is made for, cost a tenth."""
    is_chosen = re.search(r"-XX:\+Use\w+GC", options.java_options)  # a JVM refuses to have two
    return "" if is_chosen else "-XX:+UseParallelGC"


def _sharing(options: SparkOptions) -> str:
    """The classes that are kept, unless this JVM is to write them."""
    return "" if "ArchiveClassesAtExit" in options.java_options else sharing_options(archive_path())


def remove_quiet_file() -> None:
    """Remove the file that keeps Spark quiet. A JVM that runs has read it; the next one gets a new file."""
    _quiet_path().unlink(missing_ok=True)


def _quiet_path() -> Path:
    return Path(tempfile.gettempdir()) / f"seriatim-log4j2-{os.getuid()}.properties"


def _quiet_file() -> Path:
    """What Spark may write to stderr: errors. A file, because the JVM reads it before we can talk to it."""
    path = _quiet_path()
    if not path.exists() or path.read_text(encoding="utf-8") != QUIET:
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.write_text(QUIET, encoding="utf-8")
        beside.replace(path)
    return path
