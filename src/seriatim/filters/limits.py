"""How large a filter and the attributes of an event may be.

Filters come from strangers, and each is kept by every broker on its way: without limits one client could make all of
them pay. Those of events are wider than those of filters, so that whatever two filters ask for together, an event can
have: the intersection test is exact with the limits, not only without them.
"""

FILTER_CHARACTERS_MAX = 65_536  # of the text form
FILTER_ATTRIBUTES_MAX = 32
FILTER_VALUES_MAX = 256  # in all predicates together
FILTER_STRING_CHARACTERS_MAX = 256  # of one value
NAME_CHARACTERS_MAX = 64
NUMBER_CHARACTERS_MAX = 64  # as written; any number can be written in 24

EVENT_ATTRIBUTES_MAX = 2 * FILTER_ATTRIBUTES_MAX
EVENT_STRING_CHARACTERS_MAX = 1_024
