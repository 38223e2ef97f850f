"""Which topics are coupled, what that costs, and where topics should live: from subscriptions to `plan.toml`."""

from seriatim.pipeline.plan.advice import Advice, WhatIf, WideAdvice, advise, advise_on_wide, what_if
from seriatim.pipeline.plan.files import pairs_table, plan_text, summary, toml_of, topics_table, write_plan
from seriatim.pipeline.plan.inputs import Inputs, from_archive, rates_of
from seriatim.pipeline.plan.network import Network
from seriatim.pipeline.plan.planner import (
    Placed,
    Plan,
    default_network,
    make_plan,
    summed_up,
    topics_in_use,
)
from seriatim.pipeline.plan.reading import read_table

__all__ = [
    "Advice",
    "Inputs",
    "Network",
    "Placed",
    "Plan",
    "WhatIf",
    "WideAdvice",
    "advise",
    "advise_on_wide",
    "default_network",
    "from_archive",
    "make_plan",
    "pairs_table",
    "plan_text",
    "rates_of",
    "read_table",
    "summary",
    "summed_up",
    "toml_of",
    "topics_in_use",
    "topics_table",
    "what_if",
    "write_plan",
]
