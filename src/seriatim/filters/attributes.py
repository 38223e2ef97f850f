"""How attributes travel: as headers of the event, one each, written as filters write values.

    Attribute-price: 101.5
    Attribute-region: "EU"
    Attribute-at: 2026-11-16T12:00:00Z

Headers and not the payload, because a payload is the application's own: it may be compressed, encrypted or of any
format, and nobody on the way should have to decode it to know who gets it. Values are written as in filters, because
the text of a header has no type, and guessing one from its look makes a string of digits a number: "007" in quotes is a
string. The text is plain ASCII without line breaks, which every broker accepts.

Anybody may publish, with any client. A header that cannot be read counts as an absent attribute, so that it does not
stop those who receive the event. `problems` collects the reason.
"""

import json
from collections.abc import Mapping

from seriatim.filters.limits import EVENT_ATTRIBUTES_MAX
from seriatim.filters.parser import parse_value
from seriatim.filters.values import DOMAINS, Attributes, Value, check_name, typed_attributes
from seriatim.model import InputError

HEADER_PREFIX = "Attribute-"


def headers_of(attributes: Attributes) -> dict[str, str]:
    """The headers of an event with these attributes. `InputError` names an attribute that is not valid."""
    headers = {}
    for name, (kind, key) in typed_attributes(attributes).items():
        literal = json.dumps(key) if kind == "string" else DOMAINS[kind].literal(key)  # json writes plain ASCII
        headers[HEADER_PREFIX + check_name(name)] = literal
    return headers


def attributes_of(headers: Mapping[str, str] | None, problems: list[InputError] | None = None) -> dict[str, Value]:
    """The attributes in the headers of an event. Unreadable ones are left out and listed in `problems`."""
    attributes: dict[str, Value] = {}
    ours = {header: text for header, text in (headers or {}).items() if header.startswith(HEADER_PREFIX)}
    if len(ours) > EVENT_ATTRIBUTES_MAX:
        if problems is not None:
            count = f"{len(ours)} attributes, and an event may have {EVENT_ATTRIBUTES_MAX}"
            problems.append(InputError("headers", f"{count}: none of them counts", "keep the rest in the payload"))
        return attributes
    for header, text in ours.items():
        try:
            attributes[check_name(header.removeprefix(HEADER_PREFIX))] = parse_value(text)
        except InputError as error:
            if problems is not None:
                problems.append(InputError(f"header {header}", error.problem, error.fix))
    return attributes
