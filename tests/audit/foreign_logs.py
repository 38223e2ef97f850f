"""Logs of other systems, good and bad, for both readers: what each reads, and what each says."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from seriatim.audit import ColumnMapping

HOSTS = ColumnMapping.of({"subscriber": "host", "event_id": "msg_id"})


class ForeignLog(NamedTuple):
    """Files by name; then either the rows (subscriber → position:event … in order) or words of the error."""

    name: str
    files: Mapping[str, str]
    mapping: ColumnMapping
    rows: Mapping[str, str] | None = None
    error: tuple[str, ...] = ()

    def write(self, folder: Path) -> Path:
        """The files, as they are; the folder to read."""
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode(errors="surrogateescape"))
        return folder


def ordered(by: str, **more: object) -> ColumnMapping:
    return ColumnMapping.of({"subscriber": "host", "event_id": "msg_id"}, order_by=by, **more)


GOOD = [
    ForeignLog(
        "csv with other names",
        {"log.csv": "host,msg_id,topic,position\nh1,a,A,0\nh1,b,B,1\nh2,b,B,0\n"},
        HOSTS,
        {"h1": "0:a 1:b", "h2": "0:b"},
    ),
    ForeignLog(
        "numbers as text and as fractions, quotes, an empty optional cell",
        {"log.csv": 'host,msg_id,topic,position,number\nh1,"a,""1""",A,0.0,\nh1,b,B, 1 ,7\n'},
        HOSTS,
        {"h1": '0:a,"1" 1:b'},
    ),
    ForeignLog(
        "folders that name a run, and one is asked for",
        {
            "run=1/log.csv": "host,msg_id,topic,position\nh1,a,A,0\n",
            "run=2/log.csv": "host,msg_id,topic,position\nh1,b,A,0\n",
        },
        ColumnMapping.of({"subscriber": "host", "event_id": "msg_id"}, run="2"),
        {"h1": "0:b"},
    ),
    ForeignLog(
        "folders that name the subscriber, csv",
        {"host=01/log.csv": "msg_id,topic,position\na,A,0\n", "host=1%2F2/log.csv": "msg_id,topic,position\nb,A,0\n"},
        HOSTS,
        {"01": "0:a", "1/2": "0:b"},
    ),
    ForeignLog(
        "folders that name the subscriber, json lines",
        {
            "host=01/log.jsonl": '{"msg_id": "a", "topic": "A", "position": 0}\n',
            "host=1/log.jsonl": '{"msg_id": "b", "topic": "A", "position": 0}\n',
        },
        HOSTS,
        {"01": "0:a", "1": "0:b"},
    ),
    ForeignLog(
        "an empty run is of every run",
        {"log.csv": "run,host,msg_id,topic,position\nr1,h1,a,A,0\n,h1,b,A,1\n"},
        HOSTS,
        {"h1": "0:a 1:b"},
    ),
    ForeignLog(
        "tabs",
        {"log.tsv": "host\tmsg_id\ttopic\tposition\nh1\ta\tA\t0\n"},
        HOSTS,
        {"h1": "0:a"},
    ),
    ForeignLog(
        "json lines, inside an object, an id of several columns",
        {
            "log.jsonl": '{"value": {"client": "c1"}, "topic": "x/y", "partition": 0, "offset": 5, "position": 0}\n'
            '\n{"value": {"client": "c1"}, "topic": "x", "partition": 1, "offset": 6, "position": "1"}\n'
        },
        ColumnMapping.of({"subscriber": "value.client", "event_id": "topic,partition,offset"}),
        {"c1": "0:x%2Fy/0/5 1:x/1/6"},
    ),
    ForeignLog(
        "one file for each subscriber, its lines give the order",
        {"s 1.csv": "id,topic\nb,B\na,A\n", "s+2.csv": "id,topic\na,A\nb,B\n"},
        ColumnMapping.of({"event_id": "id"}, order_by="line", subscriber_from_file=True),
        {"s 1": "0:b 1:a", "s+2": "0:a 1:b"},
    ),
    ForeignLog(
        "ordered by a counter, one topic",
        {"log.csv": "host,msg_id,seq\nh1,a,10\nh1,b,11\nh1,c,300\n"},
        ordered("seq", topic_value="A"),
        {"h1": "0:a 1:b 2:c"},
    ),
    ForeignLog(
        "equal times share a position",
        {
            "log.csv": "host,msg_id,topic,at\nh1,a,A,2026-01-01T00:00:00Z\nh1,b,B,2026-01-01T00:00:00.000Z\n"
            "h1,c,A,2026-01-01T01:00:01+01:00\n"
        },
        ordered("at"),
        {"h1": "0:a 0:b 1:c"},
    ),
    ForeignLog(
        "a clock that runs backwards: what lies between is not ordered",
        {"log.csv": "host,msg_id,topic,at\nh1,a,A,1\nh1,b,A,5\nh1,c,A,3\nh1,d,A,6\nh2,e,A,9\nh2,f,A,10\n"},
        ordered("at"),
        {"h1": "0:a 1:b 1:c 2:d", "h2": "0:e 1:f"},
    ),
    ForeignLog(
        "the same, trusted",
        {"log.csv": "host,msg_id,topic,at\nh1,a,A,1\nh1,b,A,5\nh1,c,A,3\nh1,d,A,6\n"},
        ordered("at", trust_order=True),
        {"h1": "0:a 1:c 2:b 3:d"},
    ),
    ForeignLog(
        "two files of one subscriber, ordered by time",
        {
            "1.jsonl": '{"host":"h1","msg_id":"b","topic":"A","at":2}\n',
            "2.jsonl": '{"host":"h1","msg_id":"a","topic":"A","at":1}\n',
        },
        ordered("at"),
        {"h1": "0:a 1:b"},
    ),
    ForeignLog(
        "one of two runs",
        {"log.csv": "run,host,msg_id,topic,position\nr1,h1,a,A,0\nr2,h1,b,A,0\n"},
        ColumnMapping.of({"subscriber": "host", "event_id": "msg_id"}, run="r2"),
        {"h1": "0:b"},
    ),
    ForeignLog("nothing but a heading", {"log.csv": "host,msg_id,topic,position\n"}, HOSTS, {}),
    ForeignLog("not one byte", {"log.csv": ""}, HOSTS, {}),
    ForeignLog(
        "fractions as ids, as they are written",
        {
            "log.jsonl": "".join(
                f'{{"host": "h1", "msg_id": {fraction}, "topic": "A", "position": {i}.0, "run": 1.0}}\n'
                for i, fraction in enumerate(("0.12345678901234567891", "0.12345678901234567892", "1e3"))
            )
        },
        HOSTS,
        {"h1": "0:0.12345678901234567891 1:0.12345678901234567892 2:1e3"},
    ),
    ForeignLog(
        "columns that end in their place, and one with a backtick",
        {"log.csv": "a0,a1,h`st,msg_id,topic,position\nx,y,h1,a,A,0\n"},
        ColumnMapping.of({"subscriber": "h`st", "event_id": "msg_id"}),
        {"h1": "0:a"},
    ),
]


BAD = [
    ForeignLog(
        "a column that is not there, and one that is close",
        {"log.csv": "hostname,msg_id,topic,position\nh1,a,A,0\n"},
        HOSTS,
        error=("no column host, which --subscriber names", "did you mean hostname?"),
    ),
    ForeignLog(
        "a column that is called something else",
        {"log.jsonl": '{"consumer":"h1","event_id":"a","topic":"A","position":0}\n'},
        ColumnMapping.of({"event_id": "event_id"}),
        error=("no column subscriber", "--subscriber consumer", "--subscriber-from file", "consumer, event_id, topic"),
    ),
    ForeignLog(
        "no position and no order",
        {"log.csv": "host,msg_id,topic\nh1,a,A\n"},
        HOSTS,
        error=("no column position", "--order-by"),
    ),
    ForeignLog(
        "mixed types in a count",
        {"log.csv": "host,msg_id,topic,position\nh1,a,A,0\nh1,b,A,one\n"},
        HOSTS,
        error=("log.csv", "column position", "one is not a whole number"),
    ),
    ForeignLog(
        "mixed types in what gives the order",
        {"log.csv": "host,msg_id,topic,at\nh1,a,A,5\nh1,b,A,2026-01-01T00:00:00Z\n"},
        ordered("at"),
        error=("mixed types",),
    ),
    ForeignLog(
        "what gives the order is neither",
        {"log.csv": "host,msg_id,topic,at\nh1,a,A,5\nh1,b,A,noon\n"},
        ordered("at"),
        error=("log.csv", "column at", "noon is neither a number nor a time"),
    ),
    ForeignLog(
        "an empty name",
        {"log.csv": "host,msg_id,topic,position\nh1,,A,0\n"},
        HOSTS,
        error=("log.csv", "msg_id", "empty, and it is the event_id"),
    ),
    ForeignLog(
        "a negative count",
        {"log.csv": "host,msg_id,topic,position\nh1,a,A,-1\n"},
        HOSTS,
        error=("log.csv", "column position", "-1 is negative"),
    ),
    ForeignLog(
        "no JSON",
        {"log.jsonl": '{"host":"h1","msg_id":"a","topic":"A","position":0}\n{"host":\n'},
        HOSTS,
        error=("log.jsonl", " 2", "not a JSON object"),
    ),
    ForeignLog(
        "too few cells",
        {"log.csv": "host,msg_id,topic,position\nh1,a,A,0\nh1,b\n"},
        HOSTS,
        error=("log.csv", "cells"),
    ),
    ForeignLog(
        "two runs",
        {
            "r1.csv": "run,host,msg_id,topic,position\nr1,h1,a,A,0\n",
            "r2.csv": "run,host,msg_id,topic,position\nr2,h1,b,A,0\n",
        },
        HOSTS,
        error=("rows of several runs: r1, r2", "--run"),
    ),
    ForeignLog(
        "two runs in folders",
        {
            "run=r1/log.csv": "host,msg_id,topic,position\nh1,a,A,0\n",
            "run=r2/log.csv": "host,msg_id,topic,position\nh1,b,A,0\n",
        },
        HOSTS,
        error=("rows of several runs: r1, r2", "--run"),
    ),
    ForeignLog(
        "two runs in folders of json lines",
        {
            "run=r1/log.jsonl": '{"host": "h1", "msg_id": "a", "topic": "A", "position": 0}\n',
            "run=r2/log.jsonl": '{"host": "h1", "msg_id": "b", "topic": "A", "position": 0}\n',
        },
        HOSTS,
        error=("rows of several runs: r1, r2", "--run"),
    ),
    ForeignLog(
        "a folder that is no column below one that is",
        {
            "run=r1/log.csv": "host,msg_id,topic,position\nh1,a,A,0\n",
            "run=r1/more/log.csv": "host,msg_id,topic,position\nh1,b,A,1\n",
        },
        HOSTS,
        error=("folders named column=value beside or below others", "run=r1, run=r1/more"),
    ),
    ForeignLog(
        "a run that is not there",
        {"log.csv": "run,host,msg_id,topic,position\nr1,h1,a,A,0\n"},
        ColumnMapping.of({"subscriber": "host", "event_id": "msg_id"}, run="r3"),
        error=("no row of run r3", "r1"),
    ),
    ForeignLog(
        "lines of several files",
        {"1.csv": "host,msg_id,topic\nh1,a,A\n", "2.csv": "host,msg_id,topic\nh1,b,A\n"},
        ordered("line"),
        error=("h1", "several files", "lines give no order"),
    ),
    ForeignLog(
        "text of another time",
        {"log.csv": "host,msg_id,topic,position\nh1,caf\udce9,A,0\nh1,caf\udce8,A,1\n"},
        HOSTS,
        error=("log.csv", "not UTF-8"),
    ),
    ForeignLog(
        "two columns of one name",
        {"log.csv": "host,msg_id,topic,position,topic\nh1,a,A,0,B\n"},
        HOSTS,
        error=("two columns are called topic", "rename one of them"),
    ),
    ForeignLog(
        "an array of JSON",
        {"log.json": '[{"host":"h1","msg_id":"a","topic":"A","position":0}]'},
        HOSTS,
        error=("not ", "JSON", "write one JSON object per line"),
    ),
    ForeignLog(
        "JSON of several lines",
        {"log.json": '{\n "host": "h1",\n "msg_id": "a",\n "topic": "A",\n "position": 0\n}\n'},
        HOSTS,
        error=("not ", "JSON", "write one JSON object per line"),
    ),
]
