"""The text form of filters.

    filter     := "true" | predicate { "and" predicate }
    predicate  := name comparison value
                | name "prefix" string
                | name [ "not" ] "in" "(" value { "," value } ")"
    comparison := "=" | "!=" | "≠" | "<" | "<=" | "≤" | ">" | ">=" | "≥"
    name       := word { "." word }                letters, digits and _, not first a digit; not a word of the language
    value      := number | string | "true" | "false" | timestamp
    number     := as in JSON: 100, -1.5, 6e23; without a fraction and an exponent it must be a 64-bit integer
    string     := as in JSON: "EU", "a \\"quoted\\" word", "\\u00e9"
    timestamp  := as in RFC 3339, with a zone (at most 18 hours): 2026-11-16T12:00:00Z, 2026-11-16T12:00:00.25+01:00

Space between the parts is free. Words are written in small letters. An error points at its character and says what to
write instead; where people bring habits from other languages (`==`, `&&`, single quotes, `or`), it names the habit.
"""

import json
import re
from datetime import datetime
from typing import NamedTuple, NoReturn

from seriatim.filters.errors import Contradiction, FilterError
from seriatim.filters.filter import EVERYTHING, EVERYTHING_TEXT, Filter
from seriatim.filters.limits import FILTER_CHARACTERS_MAX, FILTER_VALUES_MAX, NUMBER_CHARACTERS_MAX
from seriatim.filters.predicates import Predicate, predicate
from seriatim.filters.values import FLOAT_MAX, INTEGER_MAX, INTEGER_MIN, NAME, RESERVED, Value, check_name, typed
from seriatim.model import InputError

_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<timestamp>\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d[0-9:.]*(?:[Zz]|[+-]\d\d:?\d\d)?)?)
    | (?P<number>[+-]?(?:\d|\.\d)[0-9A-Za-z_.]*(?:(?<=[eE])[+-][0-9A-Za-z_.]*)?)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
    | (?P<operator><=|>=|!=|==|<>|=<|=>|&&|\|\||=~|[=<>≠≤≥!~&|])
    | (?P<mark>[(),])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
# How numbers and timestamps are written. Spark matches these too, so they are plain enough for any regular expressions.
INTEGER_PATTERN = r"-?(?:0|[1-9]\d*)"
NUMBER_PATTERN = INTEGER_PATTERN + r"(?:\.\d+)?(?:[eE][+-]?\d+)?"
TIMESTAMP_PATTERN = (
    r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:(?:0\d|1[0-7]):[0-5]\d|18:00))"
)
_INTEGER, _NUMBER = re.compile(INTEGER_PATTERN, re.ASCII), re.compile(NUMBER_PATTERN, re.ASCII)
_TIMESTAMP = re.compile(TIMESTAMP_PATTERN, re.ASCII)
_COMPARISONS = {"=": "=", "!=": "!=", "≠": "!=", "<": "<", "<=": "<=", "≤": "<=", ">": ">", ">=": ">=", "≥": ">="}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NO_PATTERNS = 'there are no patterns; write prefix "…" for the beginning of a string'
_SYNONYMS = {"==": "=", "eq": "=", "<>": "!=", "ne": "!=", "lt": "<", "=<": "<=", "le": "<=", "gt": ">"}
_SYNONYMS |= {"=>": ">=", "ge": ">="}
_HABITS = {  # operators of other languages, and what to write instead
    **{text: f"write {operator}" for text, operator in _SYNONYMS.items()},
    "!": "write != for unequal; there is no negation of a whole filter",
    **dict.fromkeys(("=~", "~", "like", "contains", "matches"), _NO_PATTERNS),
    **dict.fromkeys(("startswith", "starts"), 'write prefix "…"'),
    "between": "write two predicates: price >= 10 and price <= 20",
    "is": 'a predicate holds only where the attribute is present; to ask for any string write >= ""',
    **{word: f"write {word}" for word in ("in", "prefix", "not")},  # in capital letters
}
_OR = "a filter is a conjunction; subscribe with two filters, or write in (…) for several values of one attribute"
_NAME_FIRST = "write name, operator, value: price > 100"
_OTHER_QUOTES = "'`\u2018\u2019\u201c\u201d"
_STRAIGHT = 'write a string in double quotes: "EU"'


class _Token(NamedTuple):
    kind: str  # a group of _TOKEN, or "end"
    text: str
    position: int


def parse(text: str) -> Filter:
    """The filter that a text describes. `FilterError`: where it cannot be read; `Contradiction`: why it is refused."""
    if not isinstance(text, str):
        raise FilterError(f"{type(text).__name__} is not text", "give the filter as a string, or use attribute(…)")
    if len(text) > FILTER_CHARACTERS_MAX:
        problem = f"{len(text)} characters, and a filter may have {FILTER_CHARACTERS_MAX}"
        raise FilterError(problem, "use several filters")
    return _Parser(text).filter()


def parse_value(text: str) -> Value:
    """One value, as filters write it: how attributes travel in headers."""
    parser = _Parser(text)
    value = parser.value("")
    parser.expect_end("one value is all there may be")
    return value


class _Parser:
    """One pass over the tokens, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._token = self._read()

    def filter(self) -> Filter:
        """The whole text."""
        if self._token.kind == "end":
            self._fail("an empty filter", f"write a predicate such as price > 100, or {EVERYTHING_TEXT} for all events")
        if self._token.text == EVERYTHING_TEXT:
            self._next()
            self.expect_end(f"{EVERYTHING_TEXT} stands alone for all events")
            return EVERYTHING
        places: list[tuple[Predicate, int]] = []
        values = 0
        while True:
            position = self._token.position
            places.append((self._predicate(), position))
            values += len(places[-1][0].keys)
            if values > FILTER_VALUES_MAX:  # before anything is computed from them
                fix = "use several filters, or a span of values"
                self._fail(f"more than {FILTER_VALUES_MAX} values", fix, position)
            if self._token.kind == "end":
                return self._conjunction(places)
            self._and()

    def expect_end(self, problem: str) -> None:
        """FilterError: something follows the end of the filter."""
        if self._token.kind != "end":
            self._fail(problem, f"leave out {self._shown()} and what follows")

    def value(self, after: str) -> Value:
        """A literal."""
        token = self._token
        place = f" after {after}" if after else ""
        match token.kind:
            case "number":
                value: Value = self._number(token)
            case "timestamp":
                value = self._timestamp(token)
            case "string":
                value = self._string(token)
            case "word" if token.text in ("true", "false"):
                value = token.text == "true"
            case "word" if token.text.lower() in ("null", "none", "nil"):
                fix = "a predicate holds only where the attribute is present; leave it out"
                self._fail(f"{token.text} is not a value", fix)
            case "word" if token.text.lower() in ("true", "false"):
                self._fail(f"{token.text} is not a value", f"write {token.text.lower()}")
            case "word" if token.text not in RESERVED:
                self._fail(f"{token.text} is not a value{place}", f'write a string in double quotes: "{token.text}"')
            case _:
                problem = "the value is missing" if token.kind == "end" else f"{self._shown()} is not a value"
                self._fail(f"{problem}{place}", 'write a number, a "string", true, false or a timestamp')
        try:
            typed("value", value)
        except InputError as error:
            self._fail(error.problem, error.fix)
        self._next()
        return value

    def _predicate(self) -> Predicate:
        token = self._token
        name = self._name()
        operator = self._operator(name)
        try:
            if operator in ("in", "not in"):
                return predicate(name, operator, self._list(operator))
            return predicate(name, operator, [self.value(f"{name} {operator}")])
        except FilterError as error:
            if error.position is not None:
                raise
            self._fail(error.problem, error.fix, token.position)

    def _name(self) -> str:
        token = self._token
        if token.kind in ("number", "string", "timestamp") or token.text in ("true", "false"):
            self._fail_value_first()
        if token.kind == "end":
            self._fail('a predicate is missing after "and"', "write one, or leave out the and")
        if token.text == "not":
            fix = 'write it the other way round: != for =, <= for >, "not in"'
            self._fail("there is no negation of a predicate", fix)
        if token.text == "(":
            self._fail("a filter needs no parentheses", "leave them out; a conjunction has no order")
        if token.kind != "word":
            self._fail(f"{self._shown()} is not the name of an attribute", _NAME_FIRST)
        if not NAME.fullmatch(token.text):
            self._fail(f"{token.text} is not the name of an attribute", "write dots only between words: order.price")
        try:
            name = check_name(token.text)
        except InputError as error:
            self._fail(f"{token.text[:20]}: {error.problem}", error.fix)
        self._next()
        return name

    def _operator(self, name: str) -> str:
        token = self._token
        if token.text == "not":
            self._next()
            if self._token.text != "in":
                self._fail(f"{self._shown()} after not", "write not in (…), or != for a single value")
            self._next()
            return "not in"
        if token.text in ("in", "prefix", *_COMPARISONS):
            self._next()
            return _COMPARISONS.get(token.text, token.text)
        if token.text.lower() in _HABITS:
            self._fail(f"{token.text} is not an operator", _HABITS[token.text.lower()])
        missing = f"an operator is missing after {name}"
        problem = missing if token.kind == "end" else f"{self._shown()} is not an operator"
        return self._fail(problem, f"write one of = != < <= > >= prefix in: for instance {name} = true")

    def _list(self, operator: str) -> list[Value]:
        if self._token.text != "(":
            self._fail(f"the list is missing after {operator}", f'write {operator} ("EU", "US")')
        self._next()
        if self._token.text == ")":
            self._fail("an empty list", "list at least one value")
        values = [self.value(f"{operator} (")]
        while self._token.text == ",":
            self._next()
            values.append(self.value(","))
        if self._token.text != ")":
            self._fail(f"{self._shown()} in a list", "write , before another value and ) after the last")
        self._next()
        return values

    def _and(self) -> None:
        token = self._token
        if token.text == "and":
            self._next()
            return
        if token.text.lower() == "or" or token.text in ("||", "|"):
            self._fail(f"there is no {token.text}", _OR)
        if token.text.lower() == "and" or token.text in ("&&", "&", ","):
            self._fail(f"{token.text} between predicates", "write and")
        if token.text in _COMPARISONS:
            self._fail("two comparisons in a row", "write two predicates: price > 10 and price < 20")
        self._fail(f"{self._shown()} after a predicate", "write and before the next one, or leave it out")

    def _conjunction(self, places: list[tuple[Predicate, int]]) -> Filter:
        """The filter; an error points at the first predicate with which it is one."""
        try:
            return Filter.of(each for each, _ in places)
        except FilterError as error:
            for count in range(1, len(places) + 1):
                try:
                    Filter.of(each for each, _ in places[:count])
                except FilterError as first:
                    position = places[count - 1][1]
                    if isinstance(first, Contradiction):
                        raise Contradiction(first.reason, first.fix, self._text, position) from error
                    raise FilterError(first.problem, first.fix, self._text, position) from error
            raise

    def _number(self, token: _Token) -> int | float:
        if len(token.text) > NUMBER_CHARACTERS_MAX:
            self._fail(f"a number of {len(token.text)} characters", f"write it in {NUMBER_CHARACTERS_MAX} or fewer")
        if not _NUMBER.fullmatch(token.text):
            fix = "write it as in JSON: 100, -1.5, 0.5, 6e23; a string in double quotes"
            self._fail(f"{token.text} is not a number", fix)
        if _INTEGER.fullmatch(token.text):
            integer = int(token.text)
            if not INTEGER_MIN <= integer <= INTEGER_MAX:
                self._fail(f"{token.text} is not a 64-bit integer", f"write the nearest float: {float(integer)!r}")
            return integer
        number = float(token.text)
        if abs(number) > FLOAT_MAX:
            self._fail(f"{token.text} is larger than any number", f"write one up to {FLOAT_MAX}")
        return number

    def _timestamp(self, token: _Token) -> datetime:
        if not _TIMESTAMP.fullmatch(token.text):
            day = token.text[:10]
            fix = f"write day, time and zone: {day}T00:00:00Z, {day}T00:00:00.5+01:00"
            self._fail(f"{token.text} is not a timestamp", fix)
        try:
            return datetime.fromisoformat(token.text)
        except ValueError as error:
            self._fail(f"{token.text} is not a timestamp: {error}", "write a day and a time that exist")

    def _string(self, token: _Token) -> str:
        try:
            text: str = json.loads(token.text)
        except json.JSONDecodeError as error:
            fix = r'write " as \", \ as \\, a line break as \n and any character as \u and four digits'
            self._fail(f"in a string: {error.msg}", fix, token.position + error.pos)
        return text

    def _fail_value_first(self) -> NoReturn:
        """`100 < price`: say how to turn it round."""
        token = self._token
        operator = self._read()
        name = self._read()
        fix = _NAME_FIRST
        if operator.text in _COMPARISONS and name.kind == "word":
            fix = f"write {name.text} {_MIRRORED[_COMPARISONS[operator.text]]} {token.text}"
        self._fail(f"{token.text} stands where the name of an attribute belongs", fix, token.position)

    def _next(self) -> None:
        self._token = self._read()

    def _read(self) -> _Token:
        """The next token that is not space."""
        while self._position < len(self._text):
            found = _TOKEN.match(self._text, self._position)
            if found is None:
                self._fail_character()
            start, self._position = self._position, found.end()
            if found.lastgroup != "space":
                assert found.lastgroup is not None, "every alternative is a named group"
                return _Token(found.lastgroup, found[0], start)
        return _Token("end", "", len(self._text))

    def _fail_character(self) -> NoReturn:
        character = self._text[self._position]
        if character == '"':
            self._fail("a string without an end", 'write " after its last character', self._position)
        if character in _OTHER_QUOTES:
            self._fail(f"{character} is not a quotation mark of filters", _STRAIGHT, self._position)
        shown = character if character.isprintable() else f"U+{ord(character):04X}"
        fix = f"{_NAME_FIRST}; names have letters, digits, _ and dots"
        self._fail(f"{shown} means nothing here", fix, self._position)

    def _shown(self) -> str:
        text = self._token.text
        return "the end" if self._token.kind == "end" else text if len(text) <= 20 else f"{text[:20]}…"

    def _fail(self, problem: str, fix: str, position: int | None = None) -> NoReturn:
        raise FilterError(problem, fix, self._text, self._token.position if position is None else position)
