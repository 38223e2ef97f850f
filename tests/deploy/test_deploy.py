"""The files in deploy/ do what they say: their command lines are run as they are, with other paths and addresses."""

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from seriatim.brokers.nats.server import NatsServer
from seriatim.server.config import parse_config
from tests.cli.processes import ENVIRONMENT, PROGRAM, WAIT_S
from tests.ports import free_port
from tests.waiting import wait

yaml: Any = import_module("yaml")  # it has no types; Spark's pipelines bring it along
DEPLOY = Path(__file__).parent.parent.parent / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    server = NatsServer()
    server.launch()
    yield server
    server.kill()


class Here:
    """A folder with `seriatim` as a program, and the cluster's file with addresses of this machine."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.folder = folder
        self.admin = f"127.0.0.1:{free_port()}"
        text = (DEPLOY / "cluster.toml").read_text()
        text = text.replace("nats://nats:4222", broker).replace("/var/lib/seriatim", str(folder))
        text = re.sub(r'bind = "0.0.0.0:7411"\n', "", text)
        text = re.sub(r'"[a-z0-9-]+\.seriatim:7411"', lambda _: f'"127.0.0.1:{free_port()}"', text)
        text = text.replace("/etc/seriatim/secrets", str(folder))
        for name in ("token", "node-token"):
            (folder / name).write_text(f"the-{name}-of-a-test")
            (folder / name).chmod(0o600)
        self.file = folder / "cluster.toml"
        self.file.write_text(text)
        self.program = folder / "bin" / "seriatim"
        self.program.parent.mkdir()
        self.program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
        self.program.chmod(0o755)

    def words(self, text: str) -> str:
        """A command line of a file, with the paths and the admin port of this machine."""
        text = text.replace("/etc/seriatim/cluster.toml", str(self.file))
        return re.sub(r"(127\.0\.0\.1|0\.0\.0\.0):7412", self.admin, text)

    def start(self, words: list[str], **environment: str) -> subprocess.Popen[str]:
        path = f"{self.program.parent}:{ENVIRONMENT.get('PATH', '')}"
        env = {**ENVIRONMENT, "PATH": path, **environment}
        return subprocess.Popen(words, env=env, cwd=self.folder, stderr=subprocess.PIPE, text=True)

    def get(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=10) as answer:
                return int(answer.status)
        except OSError as error:
            return int(getattr(error, "code", 0))


def ends_well(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err


def unit(path: Path) -> dict[str, str]:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return dict(parser["Service"])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_is_ready_beats_and_stops(path: Path, tmp_path: Path, nats: NatsServer) -> None:
    """The manager hears that it is ready, hears of it while it runs, and that it stops."""
    service = unit(path)
    assert (service["Type"], service["Restart"], service["StateDirectory"]) == ("notify", "on-failure", "seriatim")
    here = Here(tmp_path, nats.url)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_S)
        line = here.words(service["ExecStart"].replace("%i", "root")).replace("/opt/seriatim/bin/", "")
        process = here.start(shlex.split(line), NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="300000")
        try:
            told: list[bytes] = []
            while b"READY=1" not in told:
                told.append(manager.recv(1_000))
            assert b"WATCHDOG=1" in [manager.recv(1_000) for _ in range(3)]
            assert here.get("/ready") == 200
            ends_well(process)
            manager.settimeout(1.0)
            rest = [manager.recv(1_000)]
            while rest[-1] != b"STOPPING=1":
                rest.append(manager.recv(1_000))
        finally:
            process.kill()
            process.communicate()


def test_nobody_is_told_where_there_is_no_manager(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from seriatim.cli.supervision import tell_manager, watchdog_s

    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    tell_manager("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    tell_manager("READY=1")  # only logged
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    assert watchdog_s() == 1.0
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert watchdog_s() is None, "it is meant for another process"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_understands_every_line(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace("/opt/seriatim/bin/seriatim", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def dockerfile() -> dict[str, Any]:
    text = (DEPLOY / "container" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name: rest for name, rest in lines}


def test_the_image_runs_is_healthy_and_stops(tmp_path: Path, nats: NatsServer) -> None:
    """Without an engine: the entry point, the command, the health check and the signal of the image, individually."""
    image = dockerfile()
    here = Here(tmp_path, nats.url)
    words = [*json.loads(image["ENTRYPOINT"]), *map(here.words, json.loads(image["CMD"]))]
    process = here.start([*words, "--node", "eu"])
    check = image["HEALTHCHECK"].partition("CMD ")[2]
    program, *more = map(here.words, json.loads(check))
    assert (program, image["STOPSIGNAL"], image["VOLUME"]) == ("python", "SIGTERM", "/var/lib/seriatim")
    try:
        wait(
            lambda: subprocess.run([sys.executable, *more], capture_output=True, timeout=60).returncode == 0,
            "it is healthy",
        )
        wait((tmp_path / "eu").is_dir, "its journal is in the volume")  # it is alive before it has opened it
        ends_well(process)
        assert subprocess.run([sys.executable, *more], capture_output=True, timeout=60).returncode != 0
    finally:
        process.kill()
        process.communicate()


def test_compose_runs_a_node_and_its_standby() -> None:
    services = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())["services"]
    names = {f"{each['hostname']}:7411" for name, each in services.items() if name != "nats"}
    config = tomllib.loads((DEPLOY / "cluster.toml").read_text())
    assert names == set(config["nodes"]["root"]["address"])
    for name, each in services.items():
        if name != "nats":
            assert ("--standby" in each["command"]) is (name == "root-1")
            assert each["stop_grace_period"] == "30s"


def test_pods_serve_and_stand_by(tmp_path: Path, nats: NatsServer) -> None:
    """The command of the StatefulSet, in the shell that it names: pod 0 serves, pod 1 stands by and takes over."""
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "seriatim.yaml").read_text()))
    stateful_set = next(each for each in documents if each["kind"] == "StatefulSet")
    container = stateful_set["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["/bin/sh", "-c"]
    for name in ("root-0", "root-1"):
        (tmp_path / name).mkdir()
    pods = [Here(tmp_path / name, nats.url) for name in ("root-0", "root-1")]
    pods[1].file.write_text(pods[0].file.read_text())  # one file for all
    processes = []
    try:
        for number, pod in enumerate(pods):
            words = [*container["command"], *map(pod.words, container["args"])]
            processes.append(pod.start(words, HOSTNAME=f"root-{number}"))
            for probe in ("startupProbe", "livenessProbe"):
                path = container[probe]["httpGet"]["path"]
                wait(lambda pod=pod, path=path: pod.get(path) == 200, f"{probe} of pod {number}")  # type: ignore[misc]
        ready = container["readinessProbe"]["httpGet"]["path"]
        wait(lambda: pods[0].get(ready) == 200, "pod 0 is ready")
        ends_well(processes[0])
        wait(lambda: '"role":"active"' in role(pods[1]), "pod 1 has taken over")
        ends_well(processes[1])
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def role(pod: Here) -> str:
    with urllib.request.urlopen(f"http://{pod.admin}/status", timeout=10) as answer:
        return bytes(answer.read()).decode().replace(" ", "")


def test_the_file_of_the_cluster_is_right() -> None:
    config = parse_config(tomllib.loads((DEPLOY / "cluster.toml").read_text()))
    assert {node: config.journal(node) for node in config.nodes} == {
        "root": "broker",
        "eu": "file:/var/lib/seriatim/eu",
        "us": "file:/var/lib/seriatim/us",
    }
