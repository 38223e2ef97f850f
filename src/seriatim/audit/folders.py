"""Folders named `column=value`, as data platforms write them: each is a column of the files in it.

Both readers take them so. Otherwise the files below `run=1/` and `run=2/` would be compared as one run by the one that
does not look at the names.
"""

from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from seriatim.model import LogError

NOTHING = "__HIVE_DEFAULT_PARTITION__"  # what Spark and Hive write for a null


def folder_columns(folders: Sequence[str]) -> dict[str, str | None]:
    """What the folders on the way to a file say about its rows."""
    pairs = (folder.partition("=") for folder in folders)
    return {unquote(name): None if value == NOTHING else unquote(value) for name, equals, value in pairs if equals}


def check_folders(where: str, files: Iterable[Sequence[str]]) -> bool:
    """Whether the folders on the way to these files are columns.

    Raises LogError if only some of them are, or if they are others for some files: Spark passes over such files, and
    half a log must not pass for the whole.
    """
    kinds: dict[tuple[str, ...], str] = {}
    for folders in files:
        names = tuple(folder.partition("=")[0] if "=" in folder else "" for folder in folders)
        kinds.setdefault(names, "/".join(folders) or "the folder itself")
    if not any(any(names) for names in kinds):
        return False
    if len(kinds) > 1 or not all(next(iter(kinds))):
        shown = ", ".join(sorted(kinds.values())[:3])
        problem = f"folders named column=value beside or below others: {shown}"
        raise LogError(where, problem, "give a folder whose files all have the same columns on the way to them")
    return True
