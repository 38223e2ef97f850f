"""The words every other module uses for the things it names.

They are plain strings and integers: a protocol message, a log row and a line of `explain` show the same value.
"""

from typing import TypeAlias

Topic: TypeAlias = str
Node: TypeAlias = str  # a sequencer node
Address: TypeAlias = str  # any role that receives messages: node, publisher, subscriber, or BROKER
Number: TypeAlias = int  # position of an event in its topic, from 1
Position: TypeAlias = int  # place of an event in the order of all events, from 1
Entries: TypeAlias = dict[Topic, Number]  # "the first `number` events of `topic` come before me"

BROKER: Address = "broker"
APPLICATION: Address = "application"  # source of the commands a user gives to a publisher or subscriber
