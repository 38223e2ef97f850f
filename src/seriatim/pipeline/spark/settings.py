"""Who says what about a session: Spark's settings, by who wins.

1. `--conf KEY=VALUE`, and the options `--memory` and `--executor-memory`.
2. What the jobs rely on: without these settings they would read other values, or none.
3. The user's own: `PYSPARK_SUBMIT_ARGS`, then `spark-defaults.conf`.
4. What suits most jobs on one machine.

`--explain-conf` prints the result with where each setting comes from. Imports no Spark.
"""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

NEEDED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",  # what pandas writes; Spark has no such times, but an order
}
PREFERRED = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # finds the caller of every function, for messages
}
DEFAULTS = "spark-defaults.conf"


class Setting(NamedTuple):
    """A setting, and who says so. `instead_of`: what the user's own files say, and is not used."""

    key: str
    value: str
    source: str
    instead_of: str = ""


def resolve(
    given: Mapping[str, str], options: Mapping[str, str], preferred: Mapping[str, str], own: Mapping[str, Setting]
) -> list[Setting]:
    """What the session is given, by key. `given`: by --conf. `options`: by options that stand for settings. `own`: what
    the user's files say; of these only what is overruled is returned, because Spark reads them itself."""
    found: dict[str, Setting] = {}
    for key, value in {**PREFERRED, **preferred}.items():
        if key not in own:
            found[key] = Setting(key, value, "set by seriatim")
    for source, settings in (("needed by seriatim", NEEDED), ("option", options), ("--conf", given)):
        for key, value in settings.items():
            other = own.get(key)
            instead_of = f"{other.value} ({other.source})" if other is not None and other.value != value else ""
            found[key] = Setting(key, value, source, instead_of)
    return sorted(found.values())


def own_settings() -> dict[str, Setting]:
    """What the user's environment and files say: key → setting."""
    found = {key: Setting(key, value, str(defaults_file())) for key, value in _read(defaults_file()).items()}
    words = iter(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    for word in words:
        if word in ("--conf", "-c"):
            key, _, value = next(words, "").partition("=")
            found[key] = Setting(key, value, "PYSPARK_SUBMIT_ARGS")
    return found


def defaults_file() -> Path | None:
    """The spark-defaults.conf that Spark will read; None if there is none."""
    folders: list[Path] = []
    if folder := os.environ.get("SPARK_CONF_DIR"):
        folders.append(Path(folder))
    elif home := os.environ.get("SPARK_HOME"):
        folders.append(Path(home) / "conf")
    elif (spec := find_spec("pyspark")) is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent / "conf")
    return next((folder / DEFAULTS for folder in folders if (folder / DEFAULTS).is_file()), None)


def _read(path: Path | None) -> dict[str, str]:
    """As Spark reads it: a key, then blanks, `=` or `:`, then the value."""
    found: dict[str, str] = {}
    if path is None:
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        key = text
        for place, character in enumerate(text):
            if character in " \t=:":
                key = text[:place]
                break
        found[key] = text[len(key) :].lstrip(" \t").removeprefix("=").removeprefix(":").strip()
    return found


def explained(settings: Iterable[Setting], own: Mapping[str, Setting], master: str) -> list[str]:
    """The lines of --explain-conf."""
    settings = list(settings)
    used = [each for key, each in sorted(own.items()) if key not in {setting.key for setting in settings}]
    lines = [f"master: {master}", f"python: {sys.executable}"]
    for each in sorted([*settings, *used]):
        more = f"; not {each.instead_of}" if each.instead_of else ""
        lines.append(f"{each.key}={each.value}    ({each.source}{more})")
    return lines
