"""`vcube://` and `overlay://` URLs: a file or an address to ask, and the peer or broker to use."""

from pathlib import Path
from urllib.parse import parse_qsl, unquote

from seriatim.brokers.urls import split_url
from seriatim.model import InputError
from seriatim.runtime.net.addresses import split_address


def parse_direct_url(url: str, *, option: str, whom: str, example: str) -> tuple[Path | None, str, str | None]:
    """Parse a URL into its file or address, and the value of its one option, if given.

    `option`: the name of the option; `whom`: a word for what is at an address.
    """
    parts = split_url(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    for key in query.keys() - {option}:
        raise InputError("url", f"there is no {key!r} in a {parts.scheme}:// URL", f"give ?{option}= and nothing else")
    if parts.username is not None or parts.password is not None:
        raise InputError("url", "it holds a password", "give it as token=..., or in a token_file")
    place, path, which = parts.netloc, unquote(parts.path), query.get(option)
    if place in ("", ".", ".."):
        if path.strip("/") == "":
            raise InputError("url", f"{url!r} names neither a file nor a {whom}", example)
        return Path(place) / path.lstrip("/") if place else Path(path), "", which
    if path.strip("/"):
        fix = f'for a file write "{parts.scheme}://./{place}{path}", or "{parts.scheme}:///" and its full path'
        raise InputError("url", f"{place!r} is a {whom}'s address, and has no file {path!r}", fix)
    split_address("url", place)
    return None, place, which
