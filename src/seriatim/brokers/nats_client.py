"""nats-py's client, where what others send must not end it, and must not cost more than it is worth."""

from nats.aio.client import Client


class TolerantClient(Client):
    """A client that outlives headers it cannot read. The server stores whatever a publisher sends as headers.

    An error there would end the task that reads, and with it the connection; the next one would be sent the same
    message, and so on: one such message in a log would stop everybody who reads it.
    """

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (ValueError, LookupError):  # not text, or shorter than any header
            return None

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        """What nats-py makes of headers, without looking at each character of each name: every answer has some."""
        headers: dict[str, str] = {}
        for line in raw.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if colon and name.isascii():
                key = name.strip().decode()
                if not key or key.split() == [key]:  # a name has no blanks inside
                    headers[key] = value.strip().decode("utf-8", "replace")
        return headers
