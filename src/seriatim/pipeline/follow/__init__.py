"""The audit of a log while it is written.

stream.py is the streaming job and what it keeps between batches; window.py judges the rows of each batch with bounded
memory, without Spark; rows.py has those rows as arrays.
"""

from seriatim.pipeline.follow.stream import BatchDone, Follower, FollowOptions, follow_deliveries
from seriatim.pipeline.follow.window import Judged, Window, WindowOptions

__all__ = ["BatchDone", "FollowOptions", "Follower", "Judged", "Window", "WindowOptions", "follow_deliveries"]
