"""Reads what `seriatim plan` wrote: `plan.json`, and if that is not there, the tree and the homes of `plan.toml`."""

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from seriatim.model import InputError
from seriatim.pipeline.report.pages import PlanSection, Shape, TreeNode

PLAN_FILES = ("plan.json", "plan.toml")
FIX = "give the --out folder of `seriatim plan`"


def read_plan(source: str, name: str) -> PlanSection:
    """A folder of a plan, or one of its files."""
    path = Path(source)
    file = next((path / each for each in PLAN_FILES if (path / each).is_file()), path)
    try:
        text = file.read_text(encoding="utf-8")
        raw = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise InputError(str(file), error.strerror or "cannot be read", "check the path and its permissions") from None
    except ValueError as error:  # of either format, or not UTF-8
        raise InputError(str(file), f"cannot be read as a plan ({error})", FIX) from None
    if isinstance(raw, dict) and raw.get("order") == "atoms":
        fix = "look at plan.json and the tables beside it"
        raise InputError(str(file), "is a plan of atoms, and pages show trees", fix)
    try:
        section = msgspec.convert(raw, PlanSection) if file.suffix == ".json" else _of_toml(raw, name)
    except (msgspec.ValidationError, AttributeError, TypeError) as error:
        raise InputError(str(file), f"not a plan ({error})", FIX) from None
    return msgspec.structs.replace(section, name=name)


def _of_toml(raw: dict[str, Any], name: str) -> PlanSection:
    """Only what the servers need: it says where topics live, not what that costs."""
    topics = Counter(raw.get("homes", {}).values())
    nodes = [
        TreeNode(name=node, parent=msgspec.convert(shape.get("parent"), str | None), topics=topics[node])
        for node, shape in raw.get("nodes", {}).items()
    ]
    return PlanSection(name=name, before=None, after=Shape(name="plan.toml", nodes=tuple(nodes)))
