"""The requirements of Spark on this machine, checked before anything is started. Imports no Spark, so that it can say
so."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from seriatim.model import SeriatimError

JAVA_MIN = 17
ANSWER_S = 60  # to print a version; a cold disk is slow
INSTALL_SPARK = 'pip install "seriatim[spark]"'
INSTALL_JAVA = (
    f"install Java {JAVA_MIN} or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless; macOS: "
    f"brew install openjdk@17), or set JAVA_HOME to one"
)

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class RequirementMissing(SeriatimError):
    """Spark cannot run here; the message says which command installs what is missing."""


def check_requirements() -> None:
    """Raise `RequirementMissing` unless PySpark and a Java that it can use are there."""
    for package in ("pyspark", "pyarrow", "pandas"):
        if find_spec(package) is None:
            raise RequirementMissing(f"this command runs on Spark, and {package} is not installed; {INSTALL_SPARK}")
    java = find_java()
    if java is None:
        raise RequirementMissing(f"this command runs on Spark, which needs Java, and none was found; {INSTALL_JAVA}")
    version = java_version(java)
    if version is None:
        raise RequirementMissing(f"{java} does not run or does not tell its version; {INSTALL_JAVA}")
    if version < JAVA_MIN:
        raise RequirementMissing(f"{java} is Java {version}, and Spark needs {JAVA_MIN}; {INSTALL_JAVA}")


def find_java() -> str | None:
    """The Java that Spark will start: that of JAVA_HOME if it is set, else the first of the path."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return str(java) if java.exists() else None
    return shutil.which("java")


def java_version(java: str) -> int | None:
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(shown.stderr + shown.stdout)
    return int(found.group(1)) if found else None
