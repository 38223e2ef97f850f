"""Which topics are coupled, what that costs, and where topics should live: from subscriptions to `plan.toml`."""

from seriatim.pipeline.plan.advice import advise, advise_on_wide, what_if
from seriatim.pipeline.plan.files import summary, toml_of, write_plan
from seriatim.pipeline.plan.inputs import Inputs, from_archive, rates_of, read_table, topics_of
from seriatim.pipeline.plan.network import Network
from seriatim.pipeline.plan.planner import Plan, default_network, make_plan, summed_up

__all__ = [
    "Inputs",
    "Network",
    "Plan",
    "advise",
    "advise_on_wide",
    "default_network",
    "from_archive",
    "make_plan",
    "rates_of",
    "read_table",
    "summary",
    "summed_up",
    "toml_of",
    "topics_of",
    "what_if",
    "write_plan",
]
