"""All experiments by id. A paper's experiments live in files of their own, which are imported only when asked for."""

from difflib import get_close_matches
from importlib import import_module

from seriatim.lab.experiments.experiment import Experiment
from seriatim.model import InputError

# Each of these modules has a tuple EXPERIMENTS. A later paper adds its line.
PAPERS = (
    "seriatim.lab.experiments.paper000.statements",
    "seriatim.lab.experiments.paper001.statements",
    "seriatim.lab.experiments.paper001.changes",
    "seriatim.lab.experiments.paper001.choices",
    "seriatim.lab.experiments.paper003.statements",
    "seriatim.lab.experiments.paper003.choices",
    "seriatim.lab.experiments.paper004.statements",
    "seriatim.lab.experiments.paper004.choices",
)


def experiments() -> dict[str, Experiment]:
    """Every registered experiment, in the order of papers and figures."""
    found = [experiment for paper in PAPERS for experiment in import_module(paper).EXPERIMENTS]
    return {experiment.id: experiment for experiment in found}


def find(id: str) -> Experiment:
    """The experiment of this id. `package.module:NAME` is one of your own, which need not be registered."""
    module, colon, name = id.partition(":")
    if colon:
        try:
            found = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"experiment {id!r}", str(error), "give MODULE:NAME of an Experiment that can be imported here"
            ) from error
        if not isinstance(found, Experiment):
            raise InputError(f"experiment {id!r}", f"is a {type(found).__name__}", "name an Experiment")
        return found
    known = experiments()
    if id not in known:
        near = get_close_matches(id, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
        raise InputError(f"experiment {id!r}", "unknown experiment", hint)
    return known[id]
