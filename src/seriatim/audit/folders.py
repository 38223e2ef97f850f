"""Folders that are more than the files in them: tables of other systems, and output that is not finished.

Read as loose files, a table in such a format gives rows that were deleted, and a job that was stopped leaves a part of
its rows, or none. Neither may pass for a log. Both readers ask here, by the names in a folder: the plain one of local
folders (`check_below`), the one on Spark of any (`pipeline/logs/reading.py`).
"""

import os
from collections.abc import Collection
from pathlib import Path

from seriatim.model import LogError

DELTA, HUDI, ICEBERG = "_delta_log", ".hoodie", "metadata"
ICEBERG_SUFFIX = ".metadata.json"  # of a file in the folder `metadata`
BEGUN, DONE = "_temporary", "_SUCCESS"  # what a Spark job has in its folder while it writes, and afterwards
MARKS = (DELTA, HUDI, f"{ICEBERG}/*{ICEBERG_SUFFIX}", BEGUN, DONE)  # what to look for in a folder
INSTALL_DELTA = 'pip install "seriatim[delta]"'


def check_folder(where: str, names: Collection[str]) -> None:
    """Refuse a folder with these names in it, or in its folder `metadata`, if its files are not simply its rows."""
    if DELTA in names:
        raise foreign_table(where, "a part of a Delta table", "give the folder of the whole table")
    if HUDI in names:
        raise foreign_table(where, "a Hudi table")
    if any(name.endswith(ICEBERG_SUFFIX) for name in names):
        raise foreign_table(where, "an Iceberg table")
    if BEGUN in names and DONE not in names:
        problem = f"not finished: it has {BEGUN} and no {DONE}, so the job that writes it was stopped or still runs"
        raise LogError(where, problem, "wait for the job, or run it again")


def foreign_table(
    where: str, what: str, fix: str = "write its rows as Parquet first, with the system that keeps it"
) -> LogError:
    """A table whose rows only its own format knows."""
    return LogError(where, f"{what}: its files may hold rows that were deleted, so they are not read", fix)


def is_inside_table(name: str) -> bool:
    """Whether a folder of this name may be a part of a table whose own folder is above it."""
    return "=" in name or name == "data"


def check_below(path: Path) -> None:
    """The same of a local folder and of all folders in it; of a file or a part of a table, the folder that it is in."""
    above = path.resolve()
    while above.is_file() or is_inside_table(above.name):
        above = above.parent
        check_here(above)
    for folder, folders, _ in os.walk(path):
        check_here(Path(folder))
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]


def check_here(folder: Path) -> None:
    """The same of one local folder, and of none below it."""
    try:
        names = set(os.listdir(folder))
        if ICEBERG in names and (folder / ICEBERG).is_dir():
            names.update(os.listdir(folder / ICEBERG))
    except OSError:  # whoever reads the files says what is wrong
        return
    check_folder(str(folder), names)
