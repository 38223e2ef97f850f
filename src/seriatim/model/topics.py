"""Which names topics may have: a NATS subject without wildcards, on every broker.

Names below `_` and `$` belong to servers and to Seriatim itself.
"""

import re

from seriatim.model.errors import InputError
from seriatim.model.names import Topic

TOPIC_BYTES_MAX = 200

_FORBIDDEN = re.compile(r"[\s*>\x00-\x1f\x7f]")


def check_topic(topic: Topic) -> None:
    """InputError: the name is not a subject to which one can publish."""
    if problem := _problem_with(topic):
        raise InputError(f"topic {topic!r}", problem, "use words joined by dots, for instance orders.new")


def _problem_with(topic: Topic) -> str | None:
    if not topic:
        return "it is empty"
    if len(topic.encode("utf-8", "replace")) > TOPIC_BYTES_MAX:
        return f"it is longer than {TOPIC_BYTES_MAX} bytes"
    if found := _FORBIDDEN.search(topic):
        return f"it holds {found.group()!r}; blanks, control characters, * and > are not allowed"
    if not all(topic.split(".")):
        return "it has an empty word: a dot at its beginning or end, or two in a row"
    if topic[0] in "$_":
        return f"names that begin with {topic[0]} belong to the broker"
    try:
        topic.encode("utf-8")
    except UnicodeEncodeError:
        return "it cannot be written as UTF-8"
    return None
