"""What is promised of a round of peers, checked from its logs: by the auditor, and by who was there all the time."""

from collections import Counter
from pathlib import Path

from msgspec import field

from seriatim.audit import read_history
from soak.loop import Judged
from soak.peers.child import MAIN

GUARANTEES = ("causal", "fifo", "integrity")


class PeerVerdict(Judged):
    """What the logs of a round of peers show."""

    acknowledged: int = 0
    lives: int = 0
    stable: int = 0
    """Peers that held the topic all the time, in one life."""

    suspected: list[int] = field(default_factory=list)
    """Peers that nobody harmed and that were presumed dead: the machine is too slow."""

    def numbers(self) -> dict[str, int]:
        """The number of peers by outcome."""
        return {"lives": self.lives, "peers there all the time": self.stable, "suspected wrongly": len(self.suspected)}


def verify_peers(folder: Path, unharmed: list[int]) -> PeerVerdict:
    """`unharmed`: the peers that were neither killed nor frozen, and joined before anything was published."""
    history = read_history(folder / "log")
    verdict = PeerVerdict(lives=len({row.subscriber.partition("/")[0] for row in history.subscriptions}))
    verdict.take(history, GUARANTEES)
    seen: dict[str, list[str]] = {}
    for row in history.deliveries:
        if row.topic == MAIN:
            seen.setdefault(row.subscriber, []).append(row.event_id)
    lives = Counter(int(row.subscriber.partition(".")[0]) for row in history.subscriptions if row.topic == MAIN)
    verdict.suspected = [id for id in unharmed if lives[id] > 1]
    stable = {id: set(seen.get(f"{id}.1/{MAIN}", ())) for id in unharmed if lives[id] == 1}
    verdict.stable = len(stable)
    acknowledged = {
        id for path in sorted(folder.glob("acknowledged-*")) for id in path.read_text(encoding="utf-8").split()
    }
    verdict.acknowledged = len(acknowledged)
    everything = set().union(*stable.values()) if stable else set()
    known = {row.event_id for row in history.publications}
    for id, events in sorted(stable.items()):
        lost = sorted(everything - events)
        if lost:
            verdict.violations.append(f"lost: peer {id} was not notified of {lost[0]} and {len(lost) - 1} more")
    by_stable = {id for id in acknowledged if int(id.partition("~")[0].removeprefix("peer")) in stable}
    missing = sorted(by_stable - everything) if stable else []
    if missing:
        verdict.violations.append(
            f"lost: {missing[0]} was acknowledged, and {len(missing) - 1} more; no stable peer has it"
        )
    if unknown := sorted(everything - known):
        verdict.violations.append(f"invented: {unknown[0]} was notified, and nobody published it")
    if len(stable) < 2:
        verdict.violations.append(f"nothing is shown: {len(stable)} peers were there all the time")
    return verdict
