"""Checks of a configuration that need the machine the nodes run on: folders and files that must exist."""

import resource
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from seriatim.model import InputError, Node
from seriatim.server.config import ClusterConfig

SECURITY_FILES = ("token_file", "node_token_file", "certificate", "key", "authority", "stamp_key_file")


FILES_BESIDE = 512  # sockets of strangers and nodes, the broker, journals, logs


def room_for_connections(config: ClusterConfig, nodes: Collection[Node]) -> str | None:
    """Let this process open as many files as its limits promise connections. Returns what is missing; None: nothing."""
    wanted = len(nodes) * config.limits.connections_max + FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):
        allowed = soft
    return f"{wanted} files are needed, and {allowed} are allowed" if allowed < wanted else None


def check_machine(config: ClusterConfig, nodes: Iterable[Node]) -> None:
    """InputError: a folder or file of these nodes does not exist here. Opens nothing."""
    for name in nodes:
        folder = config.journal_folder(name)
        if folder is not None:
            with _named(f"nodes.{name}.journal"):
                _check_folder(config, name, folder)
    for table, keys in (("security", SECURITY_FILES), ("admin", ("token_file",))):
        for key in keys:
            text = getattr(getattr(config, table), key)
            with _named(f"{table}.{key}"):
                if text and not config.path(text).is_file():
                    raise InputError(f"{table}.{key}", f"{str(config.path(text))!r} is not a file", "correct the path")


@contextmanager
def _named(field: str) -> Iterator[None]:
    """Turn an OSError about a path into an InputError of this field."""
    try:
        yield
    except OSError as error:
        raise InputError(field, f"cannot be read: {error.strerror}", "correct the path") from None


def _check_folder(config: ClusterConfig, name: Node, folder: Path) -> None:
    field = f"nodes.{name}.journal"
    if not folder.parent.is_dir():
        fix = f"make it first (mkdir -p {folder.parent}), or correct the path"
        raise InputError(field, f"the folder {str(folder.parent)!r} does not exist", fix)
    if folder.exists() and not folder.is_dir():
        raise InputError(field, f"{str(folder)!r} is not a folder", "give a folder")
    if not config.nodes[name].journal and not folder.exists():
        _check_earlier_default(config, name, folder)


def _check_earlier_default(config: ClusterConfig, node: Node, folder: Path) -> None:
    """Earlier defaults did not name the cluster. Ignoring such a journal would give its numbers out again; using it
    would be wrong if it belongs to another cluster, which a journal does not tell. So the operator must decide."""
    earlier = config.path(f"journal-{node}")
    if earlier.exists():
        problem = f"{earlier.name!r} exists, the default of earlier versions, and {folder.name!r} does not"
        fix = (
            f"if it belongs to cluster {config.cluster!r}: mv {earlier} {folder}; "
            f'if not, name a folder: journal = "{config.journal(node)}"'
        )
        raise InputError(f"nodes.{node}.journal", problem, fix)
