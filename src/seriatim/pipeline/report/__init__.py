"""Reports: runs, experiments and plans as one HTML page that needs nothing but a browser, and as PNGs.

`pages.py` is what a page consists of, as plain data; `html.render` makes the page. Figures are drawn once, as the
shapes of `drawing.py`, and written as SVG and as PNG. `figures.py` counts rows in memory, `figures_on_spark.py` rows of
any number. Only the latter needs Spark, and only PNGs need matplotlib.
"""

from seriatim.pipeline.report.figures import RunFigures, figures_of
from seriatim.pipeline.report.html import render
from seriatim.pipeline.report.pages import (
    Comparison,
    Coupling,
    Experiment,
    Judgement,
    Measurement,
    Page,
    PlanSection,
    RunSection,
    Section,
    Shape,
    SweepSection,
    TreeNode,
)

__all__ = [
    "Comparison",
    "Coupling",
    "Experiment",
    "Judgement",
    "Measurement",
    "Page",
    "PlanSection",
    "RunFigures",
    "RunSection",
    "Section",
    "Shape",
    "SweepSection",
    "TreeNode",
    "figures_of",
    "render",
]
