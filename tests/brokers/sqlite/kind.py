"""URLs of SQLite: `sqlite:///path/file.db`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seriatim.brokers.seam import Broker, Kind
from seriatim.brokers.urls import check_options, read_query
from seriatim.model import InputError
from tests.brokers.sqlite.broker import SqliteBroker


class SqliteKind(Kind):
    """A log in a file."""

    def check(self, url: str) -> None:
        path, _, query = url.partition("://")[2].partition("?")
        read_query(url, query, {})
        if not path:
            raise InputError("url", f"{url!r} names no file", "use sqlite:///path/file.db")

    def open(self, url: str, options: Mapping[str, Any]) -> Broker:
        self.check(url)
        check_options(options, {})
        return SqliteBroker(Path(url.partition("://")[2]))

    def cluster_options(self, cluster: str, buckets: int | None, layout: Mapping[str, Any]) -> dict[str, Any]:
        if buckets:
            raise InputError("streams.buckets", "a log in SQLite has no buckets", "set it to 0")
        return {}


SQLITE = SqliteKind()
