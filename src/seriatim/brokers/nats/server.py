"""A NATS server of our own, as a child process: for `seriatim up`, for demos, tests and measurements.

It listens on 127.0.0.1 only. The server picks a free port itself and writes it to a file, so nobody else can take the
port in between. Its log is kept beside its data, and quoted if it does not start. Two servers on one folder would lose
acknowledged messages, so the server inherits a locked file and keeps it for as long as it lives.

    async with NatsServer() as server:                      with NatsServer() as server:
        await nats.connect(server.url)                          print(server.url)
"""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path

from seriatim.model import ConnectionFailed, InputError, TimedOut
from seriatim.runtime.with_parent import ending_with_parent

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
START_S = 20.0  # a busy machine may take seconds; a server that cannot start ends by itself, and is noticed at once
STOP_S = 10.0
POLL_S = 0.01
LOCK_S = 5.0  # a server whose parent was killed a moment ago is still ending
LOG_LINES_QUOTED = 8


def find_binary() -> Path:
    """The nats-server beside this Python, or the one on PATH."""
    name = "nats-server.exe" if os.name == "nt" else "nats-server"
    beside = Path(sys.executable).parent / name
    if beside.is_file():
        return beside
    found = shutil.which("nats-server")
    if found is None:
        raise InputError(
            "nats-server",
            f"there is none beside {sys.executable} and none on PATH",
            'install it with: pip install "seriatim[embedded]"',
        )
    return Path(found)


class NatsServer:
    """One server with JetStream. `folder`: where it keeps its data; None: a temporary one, removed at the end.

    `port` 0: any free one; a restart keeps it. `config` is added to the server's configuration file as it is.
    `ends_with_parent`: also when this process is killed (on Linux). The kernel then looks at the thread that launches,
    so that one must live as long as the server. The threads of an event loop do, while the loop is open.
    """

    def __init__(
        self, folder: Path | str | None = None, port: int = 0, *, config: str = "", ends_with_parent: bool = True
    ) -> None:
        if not 0 <= port <= 65_535:
            raise InputError("port", f"{port} is not a port", "give one from 1 to 65535, or 0 for any free one")
        self.port = port
        self._binary = find_binary()
        self.folder = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="seriatim-nats-"))
        self._config = config
        self._ends_with_parent = ends_with_parent
        self._process: subprocess.Popen[bytes] | None = None
        self._orphan: weakref.finalize[..., NatsServer] | None = None
        self._leftovers: weakref.finalize[..., NatsServer] | None = None
        if folder is None:  # removed also if the object is simply dropped
            self._leftovers = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"nats://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ConnectionFailed("the NATS server is not running; launch it first")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_file(self) -> Path:
        return self.folder / "nats-server.log"

    # ── without asyncio ───────────────────────────────────────────────────────────────────────────────────────────

    def launch(self) -> None:
        """Start it and wait until it takes clients."""
        if self.running:
            raise InputError("server", f"it is running already on {self.url}", "stop it first, or use restart")
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = self._lock_folder()
        try:
            self._process = process = self._start_process(lock)
            os.write(lock, f"{process.pid}\n".encode())
        finally:
            os.close(lock)  # the server keeps its own copy, and with it the lock
        self._orphan = weakref.finalize(self, _kill, process)
        try:
            self._wait_until_ready(process)
        except (ConnectionFailed, TimedOut):
            self.kill()
            raise
        logger.info("nats server started: url=%s pid=%s folder=%s", self.url, process.pid, self.folder)

    def kill(self) -> None:
        """End it immediately, as a power failure would end the process (the disk keeps what was written)."""
        if self._process is not None:
            _kill(self._process)
            self._process = None

    def terminate(self) -> None:
        """End it in an orderly way, and remove its folder if that was temporary."""
        self._end_process()
        if self._leftovers is not None:
            self._leftovers()

    def __enter__(self) -> "NatsServer":
        self.launch()
        return self

    def __exit__(self, *error: object) -> None:
        self.terminate()

    # ── with asyncio ──────────────────────────────────────────────────────────────────────────────────────────────

    async def restart(self) -> None:
        """Start it again on the same port and folder; it may be running, stopped or killed."""
        await asyncio.to_thread(self._end_process)
        await asyncio.to_thread(self.launch)

    async def stop(self) -> None:
        """End it in an orderly way, and remove its folder if that was temporary. May be called twice."""
        await asyncio.to_thread(self.terminate)

    async def __aenter__(self) -> "NatsServer":
        await asyncio.to_thread(self.launch)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def _configuration(self) -> str:
        folder = json.dumps(str(self.folder), ensure_ascii=False)
        lines = [
            f"listen: {HOST}:{self.port or -1}",
            f"ports_file_dir: {folder}",
            "max_payload: 8MB",
            "write_deadline: 10s",
            f"jetstream {{ store_dir: {folder} }}",
            self._config,
            "",
        ]
        return "\n".join(lines)

    def _lock_folder(self) -> int:
        """A locked file that the server inherits. It holds the id of the process that has the lock."""
        import fcntl  # not on every platform; the rest of the package is

        lock = os.open(self.folder / "nats-server.lock", os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(POLL_S)
                    continue
                holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
                os.close(lock)
                who, fix = (f" (process {holder})", f": kill {holder}") if holder else ("", "")
                problem = f"a NATS server{who} still uses {str(self.folder)!r}"
                raise InputError("folder", problem, f"stop it{fix}; or give another folder") from None
        os.ftruncate(lock, 0)
        return lock

    def _start_process(self, lock: int) -> "subprocess.Popen[bytes]":
        for stale in self.folder.glob("*.ports"):
            stale.unlink()
        configuration = self.folder / "nats-server.conf"
        configuration.touch(mode=0o600)  # it may hold a token
        configuration.write_text(self._configuration(), encoding="utf-8")
        command = [str(self._binary), "--config", str(configuration)]
        if self._ends_with_parent:
            command = ending_with_parent(command)
        with self.log_file.open("ab") as log:
            # A group of its own: Ctrl-C in a terminal goes to us, and we end it when we are ready.
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=(lock,)
            )

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]") -> None:
        """The server writes its ports file when it takes clients; then the first line it says is read as a proof."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                said = f"it said:\n{self._last_lines()}"
                raise ConnectionFailed(f"nats-server ended with code {process.returncode} before it was ready; {said}")
            port = self._port_said_by(process.pid)
            if port is not None and _greets(port):
                self.port = port
                return
            time.sleep(POLL_S)
        raise TimedOut(f"nats-server was not ready after {START_S:g} s; it said:\n{self._last_lines()}")

    def _port_said_by(self, pid: int) -> int | None:
        for file in self.folder.glob(f"*_{pid}.ports"):
            try:
                urls = json.loads(file.read_text(encoding="utf-8"))["nats"]
            except ValueError:
                return None  # being written
            return int(urls[0].rpartition(":")[2])
        return None

    def _last_lines(self) -> str:
        lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES_QUOTED:]) or "(nothing)"

    def _end_process(self) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            logger.warning("nats server did not stop in time, killed: pid=%s", process.pid)
            _kill(process)
        self._process = None


def _greets(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1.0) as connection:
        return connection.recv(4) == b"INFO"
    return False


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a server that nobody has stopped, because its object was dropped or the interpreter ends."""
    process.kill()
    process.wait(STOP_S)
