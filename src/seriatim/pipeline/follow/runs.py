"""Which run of a log is followed: rows of two runs must not be compared with each other.

As in an audit of a whole log: with `--run` only rows of that run count, and without it rows of a second run end the
audit. A row that does not say is of every run. The remembered part is bounded, and is part of the state of a batch.
"""

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from seriatim.audit.rules import no_such_run, runs_mixed
from seriatim.model import InputError, LogError

RUN = "_run"  # the column of a batch
OTHERS_MAX = 20  # names of runs that are remembered, to be shown
LOG = "the log"


class Runs(Struct):
    """The known runs of a log. It outlives a restart, because a checkpoint is of one run."""

    wanted: str | None = None  # the one that was asked for
    seen: str | None = None  # the run that is followed, once a row of it has come
    others: list[str] = field(default_factory=list)  # those that were passed over

    def asked_for(self, run: str | None, checkpoint: str) -> "Runs":
        """Continue after a restart. InputError: another run is asked for than the checkpoint follows."""
        known = self.wanted or self.seen
        if run is not None and known is not None and run != known:
            fix = "give another checkpoint: each run is followed with its own"
            raise InputError(checkpoint, f"follows run {known}, not {run}", fix)
        return Runs(run or self.wanted, self.seen, self.others)

    def chosen(self, rows: pa.Table) -> pa.Table:
        """The rows of the run that is followed, without the column. Raises LogError if there are two runs."""
        named = {run for run in pc.unique(rows[RUN]).to_pylist() if run is not None}
        if self.wanted is None:
            both = named | ({self.seen} if self.seen is not None else set())
            if len(both) > 1:
                raise runs_mixed(LOG, both)
            self.seen = next(iter(both), None)
            return rows.drop_columns([RUN])
        if self.wanted in named:
            self.seen = self.wanted
        self.others = sorted({*self.others, *named} - {self.wanted})[:OTHERS_MAX]
        is_other = pc.fill_null(pc.not_equal(rows[RUN], self.wanted), False)
        return rows.filter(pc.invert(is_other)).drop_columns([RUN])

    def absence(self) -> LogError | None:
        """If a run was asked for, and all that was named are others."""
        if self.wanted is None or self.seen is not None or not self.others:
            return None
        return no_such_run(LOG, self.wanted, self.others)
