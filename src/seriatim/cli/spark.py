"""The options that the commands on Spark share. Imports no Spark: help and mistakes need none."""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import structs

from seriatim.cli.common import add_options, notice, pairs_in
from seriatim.model import InputError, SeriatimError

ANSWER_S = 10.0  # then a master that has not answered is told

_Function = TypeVar("_Function", bound=Callable[..., Any])

_options = add_options(
    click.option(
        "--master",
        envvar="SERIATIM_MASTER",
        default="local[*]",
        help="Where Spark runs: local[*], spark://host:7077, yarn, k8s://… (environment: SERIATIM_MASTER).",
    ),
    click.option("--memory", help="Memory of Spark's driver.  [default: 4g on local, else Spark's own]"),
    click.option("--executor-memory", help="Memory of each executor, on a cluster.  [default: Spark's own]"),
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of Spark's; may be given again. It wins over spark-defaults.conf, and that over ours.",
    ),
    click.option(
        "--explain-conf", is_flag=True, help="Print the settings of the session and where they come from, and end."
    ),
)


def spark_options(function: _Function) -> _Function:
    """A decorator: the options of a session, and `--explain-conf`, of which the command need not know."""

    @wraps(function)
    def command(*args: Any, explain_conf: bool, **options: Any) -> Any:
        if not explain_conf:
            return function(*args, **options)
        for line in _explained(options):
            click.echo(line)
        return None

    return _options(command)  # type: ignore[return-value]  # with one option more, which it keeps to itself


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

    settings = _settings(options)
    check_requirements()
    from seriatim.pipeline.spark.session import spark_session

    chosen = _chosen(options, settings)
    if is_small and chosen.is_local:
        chosen = structs.replace(chosen, shuffle_partitions=2, java_options="-XX:TieredStopAtLevel=1")
    with ExitStack() as stack:
        with _quiet_start("" if chosen.is_local else chosen.master):
            session = stack.enter_context(spark_session(chosen, f"seriatim {name}"))
        yield session


def _settings(options: dict[str, Any]) -> dict[str, str]:
    given = pairs_in("--conf", options["conf"], "a setting", "KEY=VALUE")
    if options["executor_memory"] is not None and options["master"].startswith("local"):
        raise InputError("--executor-memory", "there are no executors on local", "give --memory, or a --master")
    return {key.strip(): value.strip() for key, value in given}


def _chosen(options: dict[str, Any], settings: dict[str, str]) -> Any:
    from seriatim.pipeline.spark.session import SparkOptions

    memory, more = options["memory"], options["executor_memory"]
    return SparkOptions(master=options["master"], memory=memory, executor_memory=more, settings=settings)


def _explained(options: dict[str, Any]) -> list[str]:
    from seriatim.pipeline.spark.requirements import check_requirements
    from seriatim.pipeline.spark.settings import explained, own_settings

    settings = _settings(options)
    check_requirements()
    from seriatim.pipeline.spark.session import settings_of

    return explained(settings_of(_chosen(options, settings)), own_settings(), options["master"])


def _end_jvm() -> None:
    """End a JVM that was being started (on Linux): it would wait for ever, since the file that it is to write its
    address to is gone, and keep the terminal open."""
    for children in Path("/proc/self/task").glob("*/children"):
        for child in children.read_text().split():
            with suppress(OSError):  # it has ended
                if b"SparkSubmit" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)


@contextmanager
def _quiet_start(master: str) -> Iterator[None]:
    """Hide what the JVM writes to stderr at its start, and show it only if the JVM does not start. `master`: tell that
    it has not answered yet, after a while; empty: none is needed."""
    sys.stderr.flush()
    kept = os.dup(2)

    def tell() -> None:
        os.write(kept, f"{master} has not answered for {ANSWER_S:g} s; still trying, Ctrl-C ends it\n".encode())

    timer = threading.Timer(ANSWER_S, tell)
    timer.daemon = True
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)  # the JVM inherits it, and keeps it
        try:
            if master:
                timer.start()
            yield
        except SeriatimError:  # which says it in one line
            raise
        except KeyboardInterrupt:
            _end_jvm()
            raise
        except BaseException:
            said.seek(0)
            os.write(kept, said.read())
            raise
        finally:
            timer.cancel()
            if timer.ident is not None:
                timer.join()
            os.dup2(kept, 2)
            os.close(kept)
