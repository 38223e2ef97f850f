"""The archive: a cluster's streams as partitioned Parquet, each row exactly once.

records.py says what counts as written, writing.py is the streaming job, reading.py reads an archive back, and
compaction.py makes few large files of many small ones.
"""

from seriatim.pipeline.archive.compaction import compact
from seriatim.pipeline.archive.reading import describe, read_archive, read_gaps
from seriatim.pipeline.archive.records import Record, records_of
from seriatim.pipeline.archive.writing import ArchiveOptions, archive

__all__ = ["ArchiveOptions", "Record", "archive", "compact", "describe", "read_archive", "read_gaps", "records_of"]
