"""The made-up internet: as many routers as asked for, in one piece, and delays that a plain search finds, too."""

from random import Random

import pytest

from seriatim.lab.experiments.paper004.transit_stub import TransitStub, clustered_hosts, shortest, transit_stub
from seriatim.model import InputError

SMALL = TransitStub(transit_domains=3, transit_routers=4, stubs=2, stub_routers=7)


def test_the_default_has_ten_thousand_routers_in_one_piece() -> None:
    topology = transit_stub(1)
    assert len(topology.links) == topology.shape.routers == 10_000
    assert len(shortest(topology.links, 9_999, set(topology.links))) == 10_000


@pytest.mark.parametrize("seed", range(1, 6))
def test_delays_are_those_of_a_search_through_all_routers(seed: int) -> None:
    topology = transit_stub(seed, SMALL)
    everything = set(topology.links)
    for one in everything:
        for other, delay in shortest(topology.links, one, everything).items():
            assert topology.delay(one, other) == pytest.approx(delay, abs=1e-9)


def test_links_lead_both_ways_and_a_stub_has_one_way_out() -> None:
    topology = transit_stub(2, SMALL)
    for one, neighbours in topology.links.items():
        assert all(topology.links[other][one] == delay for other, delay in neighbours.items())
    for index, stub in enumerate(topology.stubs):
        leaving = [
            (router, other)
            for router in stub
            for other in topology.links[router]
            if topology.stub_of.get(other) != index
        ]
        assert leaving == [(stub[0], topology.transit_of(stub[0]))]


def test_a_seed_is_a_topology() -> None:
    assert transit_stub(7, SMALL).links == transit_stub(7, SMALL).links
    assert transit_stub(7, SMALL).links != transit_stub(8, SMALL).links


def test_hosts_of_a_cluster_are_in_one_stub() -> None:
    topology = transit_stub(1)
    hosts = clustered_hosts(topology, [f"h{index}" for index in range(20)], 8, Random(1))
    stubs = [topology.stub_of[hosts[f"h{index}"]] for index in range(20)]
    assert len(set(stubs[:8])) == len(set(stubs[8:16])) == len(set(stubs[16:])) == 1
    assert len(set(stubs)) > 1


def test_a_shape_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="stubs"):
        TransitStub(stubs=0)
    with pytest.raises(InputError, match="probability"):
        TransitStub(stub_links=1.5)
