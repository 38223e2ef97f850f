"""Filters over the attributes of events: the language, exact questions about filters, and indexes of many of them.

| where         | what                                                                            |
|---------------|---------------------------------------------------------------------------------|
| values.py     | names, and the four types of values, each an ordered set with successors        |
| spans.py      | sets of values: exact, one form for each set                                    |
| predicates.py | one predicate ↔ a set of values                                                 |
| filter.py     | `Filter`: matches, intersects, covers; `attribute("price") > 100`               |
| parser.py     | the text form                                                                   |
| attributes.py | how attributes travel: headers of an event                                      |
| matching.py   | `MatchIndex`: which stored filters does an event match                          |
| overlap.py    | `OverlapIndex`: which stored filters intersect, cover, are covered by another   |
| stored.py     | what both keep of a filter, and where                                           |
| boxes.py      | the tree that both search                                                       |

Pure: no clock, no input and output. Filters are values, and everything here may be shared.
"""

from seriatim.filters.attributes import HEADER_PREFIX, attributes_of, headers_of
from seriatim.filters.errors import Contradiction, FilterError
from seriatim.filters.filter import EVERYTHING, Attribute, Constraint, Filter, attribute
from seriatim.filters.matching import MatchIndex
from seriatim.filters.overlap import OverlapIndex
from seriatim.filters.parser import parse, parse_value
from seriatim.filters.predicates import Predicate
from seriatim.filters.values import Attributes, Kind, Value

__all__ = [
    "EVERYTHING",
    "HEADER_PREFIX",
    "Attribute",
    "Attributes",
    "Constraint",
    "Contradiction",
    "Filter",
    "FilterError",
    "Kind",
    "MatchIndex",
    "OverlapIndex",
    "Predicate",
    "Value",
    "attribute",
    "attributes_of",
    "headers_of",
    "parse",
    "parse_value",
]
