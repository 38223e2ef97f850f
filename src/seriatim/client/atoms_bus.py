"""The bus on a cluster of sequencing atoms: `connect(..., order="atoms")`.

The same calls as on any bus. A topic's members are its subscribers: whoever subscribes becomes a member of the topic's
next group, and hears everything that is published from then on. An event that nobody would get is refused.
"""

from pathlib import Path
from typing import Any, Literal

from seriatim.client.atoms_publisher import AtomsPublisher
from seriatim.client.atoms_subscriber import AtomsSubscriber
from seriatim.client.bus import Bus
from seriatim.client.cluster import Cluster, Network
from seriatim.client.durable import Past
from seriatim.client.feed import Feed
from seriatim.client.options import GapPolicy
from seriatim.client.outbox import Outbox
from seriatim.client.settings import Settings
from seriatim.client.subscription import LEAVE_S, Subscription, Wishes
from seriatim.filters import Filter
from seriatim.model import Address, Closed, InputError, Topic
from seriatim.protocols.atoms import AtomsOptions

STAMP_BYTES = 128 * 1024  # room in a message for an item's stamp: some thousand atoms
ALIVE_PER_LEASE = 3
LEASE_MS = 30_000.0  # if the cluster does not say


class AtomsSubscription(Subscription):
    """Made by `AtomsBus.subscribe`."""

    def _machine(self, cluster: Cluster, past: Past) -> AtomsSubscriber:
        description = cluster.description
        options = AtomsOptions(causal=description.causal, retry_ms=description.retry_ms)
        lease_ms = description.subscriber_lease_ms or LEASE_MS
        return AtomsSubscriber(self.name, description.coordinator, options, alive_ms=lease_ms / ALIVE_PER_LEASE)

    async def _leave(self, feed: Feed) -> None:
        """Leaving as such is not enough: others would wait until we have seen the end of our last groups."""

    async def _close(self) -> None:
        try:
            if self._feed is not None:
                await self._feed.depart(min(LEAVE_S, self._wishes.timeout_s))
        except Closed:
            pass  # its machine has ended; the coordinator will find out
        finally:
            await super()._close()


class AtomsBus(Bus):
    """Made by `connect(..., order="atoms")`."""

    def __init__(self, settings: Settings) -> None:
        for name, given, fix in (
            ("mode", settings.mode is not None, "leave it out: atoms give the numbers"),
            ("stamp_key", settings.stamp_key is not None, "leave it out: stamps of atoms are not proven"),
            ("gaps", settings.gaps != GapPolicy.wait(), "leave it out: nothing is ever skipped"),
            ("journals", settings.journals is not None, "leave it out: there are no durable subscriptions"),
        ):
            if given:
                raise InputError(name, 'means nothing with order="atoms"', fix)
        super().__init__(settings)

    def _make_outbox(self, cluster: Cluster, network: Network) -> Outbox:
        settings, description = self._settings, cluster.description
        lease_ms = description.subscriber_lease_ms or LEASE_MS
        return Outbox(
            self.name,
            description.tree,
            description.options,
            broker=cluster.broker,
            switchboard=network.switchboard,
            clock=self._clock,
            limits=settings.limits,
            timeout_s=settings.timeout_s,
            log=self._publications,
            machine=AtomsPublisher(description.ingresses, description.retry_ms, lease_ms / ALIVE_PER_LEASE),
            reserve_bytes=STAMP_BYTES,
        )

    def subscribe(
        self,
        *topics: Topic,
        durable: str | None = None,
        ordered: bool = True,
        gaps: GapPolicy | None = None,
        show_gaps: bool = False,
        acknowledge: Literal["next", "manual"] = "next",
        log: str | Path | None = None,
        start: Literal["now", "first"] = "now",
        where: str | Filter | None = None,
    ) -> Subscription:
        """A subscription to these topics; enter it to become a member of them.

        `log`: a folder for `seriatim audit`, or "broker:". `where`: a filter (docs/filters.md). The rest is for trees
        and is refused.
        """
        for name, given, problem in (
            ("durable", durable is not None, "receivers keep no journal: who restarts is another member"),
            ("ordered", not ordered, "members get everything in order"),
            ("gaps", gaps not in (None, GapPolicy.wait()), "nothing is ever skipped"),
            ("acknowledge", acknowledge != "next", "only durable subscriptions remember it"),
            ("start", start != "now", "a member gets what is published from now on"),
        ):
            if given:
                raise InputError(name, f'{problem} (order="atoms")', "leave it out, or use a tree")
        return super().subscribe(*topics, show_gaps=show_gaps, log=log, where=where)

    def _subscription(self, address: Address, wishes: Wishes, **parts: Any) -> Subscription:
        return AtomsSubscription(address, wishes, **parts)
