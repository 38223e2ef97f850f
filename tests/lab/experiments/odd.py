"""Experiments that go wrong in every way a run can, found by their module and name."""

import os
import signal
import threading
from pathlib import Path

from seriatim.lab.experiments import Axis, Experiment, Measures, Parameters


def behave(parameters: Parameters, seed: int) -> Measures:
    """Do what the parameter says."""
    match parameters["way"]:
        case "well":
            return {"square": float(seed * seed)}
        case "raise":
            raise ValueError(f"seed {seed} is not to my taste")
        case "hang":
            if "ODD_FILE" in os.environ:
                beside = Path(f"{os.environ['ODD_FILE']}.new")
                beside.write_text(str(os.getpid()))
                beside.replace(os.environ["ODD_FILE"])
            threading.Event().wait()
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(3)
        case "eat":
            return {"bytes": float(len(bytearray(64 << 30)))}
        case "print":
            print("not an answer")
            return {"square": float(seed * seed)}
    raise AssertionError(parameters)


def _experiment(*ways: str) -> Experiment:
    return Experiment(
        id="odd",
        title="Runs that go wrong",
        citation="none",
        x="way",
        measures={"square": "the seed, squared"},
        axes=(Axis("way", ways, ways),),
        run=behave,
        seeds=2,
    )


WELL = _experiment("well")
ODD = _experiment("well", "raise", "hang", "crash", "exit", "eat", "print")
MIXED = _experiment("well", "raise")
NOT_ONE = "a string"
