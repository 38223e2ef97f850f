"""Who wins when several say something about a session, and what is told when its master does not answer."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seriatim.cli import main
from seriatim.cli import spark as cli_spark
from seriatim.model import InputError
from seriatim.pipeline.spark.master import check_master
from seriatim.pipeline.spark.session import SparkOptions, settings_of
from seriatim.pipeline.spark.settings import Setting, own_settings
from seriatim.pipeline.spark.unreadable import of_worker
from tests.cli.processes import ENVIRONMENT, PROGRAM
from tests.ports import free_port
from tests.waiting import wait

PARTITIONS = "spark.sql.shuffle.partitions"
ZONE = "spark.sql.session.timeZone"
MINE = f"""
# the settings of this site
{PARTITIONS}   400
{ZONE}=Europe/Zurich
spark.executor.cores: 2
spark.driver.memory\t6g
"""
ENDED_S = 300.0  # Spark alone gives up after a minute; a busy machine takes longer to start it


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spark-defaults.conf, and nothing in the environment."""
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text(MINE)
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    return folder / "spark-defaults.conf"


def found(options: SparkOptions | None = None) -> dict[str, Setting]:
    return {each.key: each for each in settings_of(options or SparkOptions())}


def test_the_users_file_is_read_as_spark_reads_it(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = {key: each.value for key, each in own_settings().items()}
    assert read == {PARTITIONS: "400", ZONE: "Europe/Zurich", "spark.executor.cores": "2", "spark.driver.memory": "6g"}
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf {PARTITIONS}=7 --conf 'spark.app.name=a b' pyspark-shell")
    said = own_settings()
    assert said[PARTITIONS] == Setting(PARTITIONS, "7", "PYSPARK_SUBMIT_ARGS")
    assert said["spark.app.name"].value == "a b"


def test_what_the_user_says_wins_over_our_defaults(conf: Path) -> None:
    chosen = found()
    assert PARTITIONS not in chosen and "spark.driver.memory" not in chosen  # Spark reads the file by itself
    assert chosen["spark.ui.enabled"].source == "set by seriatim"
    conf.unlink()
    assert found()[PARTITIONS].value == "16" and found()["spark.driver.memory"].value == "4g"


def test_options_win_over_files_and_settings_over_options(conf: Path) -> None:
    assert found(SparkOptions(memory="8g"))["spark.driver.memory"].value == "8g"
    settings = {"spark.driver.memory": "9g", PARTITIONS: "3", ZONE: "Asia/Tokyo"}
    chosen = found(SparkOptions(memory="8g", settings=settings))
    assert {key: chosen[key].value for key in settings} == settings
    assert chosen[PARTITIONS].instead_of == f"400 ({conf})"


def test_what_jobs_rely_on_wins_over_files(conf: Path) -> None:
    """Times without a zone would be read as others."""
    assert found()[ZONE] == Setting(ZONE, "UTC", "needed by seriatim", f"Europe/Zurich ({conf})")


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn"])
def test_on_a_cluster_little_is_set(conf: Path, master: str) -> None:
    conf.unlink()
    chosen = found(SparkOptions(master=master, memory="8g", executor_memory="2g"))
    assert PARTITIONS not in chosen and "spark.driver.host" not in chosen
    assert (chosen["spark.driver.memory"].value, chosen["spark.executor.memory"].value) == ("8g", "2g")
    assert "spark.driver.memory" not in found(SparkOptions(master=master))


def audit(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["audit", "log.csv", *map(str, words)])


def test_explain_conf(conf: Path) -> None:
    result = audit("--explain-conf", "--conf", f"{ZONE}=Asia/Tokyo", "--memory", "1g")
    lines = result.output.splitlines()
    assert result.exit_code == 0 and lines[0] == "master: local[*]", result.output
    assert f"{PARTITIONS}=400    ({conf})" in lines
    assert f"spark.driver.memory=1g    (option; not 6g ({conf}))" in lines
    assert f"{ZONE}=Asia/Tokyo    (--conf; not Europe/Zurich ({conf}))" in lines
    assert "spark.ui.enabled=false    (set by seriatim)" in lines


def test_wrong_words() -> None:
    local = audit("--explain-conf", "--executor-memory", "1g")
    assert local.exit_code == 2 and "--executor-memory: there are no executors on local; give --memory" in local.output
    for master in ("spark://host:port", "spark://:7077", "spark://host:70777"):
        with pytest.raises(InputError, match="is not a host and port"):
            check_master(master)


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{server.getsockname()[1]}")


def test_a_master_that_has_not_answered_is_told(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_spark, "ANSWER_S", 0.001)
    with cli_spark._quiet_start("spark://host:7077"):
        os.write(2, b"what the JVM says\n")
        wait(lambda: "has not answered" in capfd.readouterr().err, "it is told")
    with cli_spark._quiet_start(""):
        os.write(2, b"what the JVM says\n")
    assert capfd.readouterr().err == ""


WORKER = """[UDF_ERROR] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/spark/python/pyspark/worker.py", line 3500, in main
    func, profiler, deserializer, serializer = read_command(pickleSer, infile)
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ModuleNotFoundError: No module named 'seriatim'
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:600)
"""


def test_a_worker_says_what_is_wrong() -> None:
    said = of_worker(WORKER)
    assert said is not None and "ModuleNotFoundError: No module named 'seriatim'" in said and "org.apache" not in said
    assert 'File "/opt/spark/python/pyspark/worker.py", line 3500, in main' in said
    assert of_worker("java.lang.OutOfMemoryError: Java heap space") is None


@contextmanager
def running(*words: str | Path) -> Iterator["subprocess.Popen[str]"]:
    """An audit on Spark, in a process group of its own, as a shell starts it."""
    process = subprocess.Popen(
        [*PROGRAM, "audit", *map(str, words), "--engine", "spark"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it has started
        process.communicate()


def children_of(pid: int) -> Iterator[str]:
    """The command lines of the processes that it has started."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):  # it has ended
            yield Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace")


def log_of(folder: Path) -> Path:
    (folder / "log.csv").write_text("subscriber,position,event_id,topic\ns1,0,a,A\n")
    return folder / "log.csv"


def test_a_master_that_is_not_there(tmp_path: Path) -> None:
    with running(log_of(tmp_path), "--master", f"spark://127.0.0.1:{free_port()}") as process:
        out, err = process.communicate(timeout=ENDED_S)
    (error,) = err.splitlines()
    assert error.startswith("Error: --master: 127.0.0.1:") and "start the master" in error
    assert process.returncode == 2 and not out


@pytest.mark.long
def test_a_master_that_never_answers(tmp_path: Path) -> None:
    """Something listens there, and is no master: after ten seconds a line says so, and one more when Spark gives up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"
        with running(log_of(tmp_path), "--master", master) as process:
            out, err = process.communicate(timeout=ENDED_S)
    told, error = err.splitlines()
    assert told == f"{master} has not answered for 10 s; still trying, Ctrl-C ends it"
    assert error.startswith(f"Error: no session on {master}: ") and process.returncode == 2 and not out


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks for child processes in /proc")
def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    with running(log_of(tmp_path)) as process:
        wait(lambda: any("SparkSubmit" in words for words in children_of(process.pid)), "Spark is starting", ENDED_S)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=ENDED_S)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines() == ["interrupted: nothing is known yet"]
