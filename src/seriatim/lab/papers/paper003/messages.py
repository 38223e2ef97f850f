"""Messages between brokers of the printed algorithm; all others are those of `protocols.overlay`."""

from msgspec import Struct

from seriatim.protocols.overlay.messages import Key, Publication


class Carry(Struct, frozen=True, tag=True):
    """A publication with the paper's two flags: request an acknowledgement from here, wait for one from me."""

    publication: Publication
    request: bool = False
    wait: bool = False


class Ack(Struct, frozen=True, tag=True):
    """Nothing that conflicts with this publication comes from me any more."""

    key: Key
