"""Reports: runs, experiments and plans as one HTML page that needs nothing but a browser, and as PNGs.

`pages.py` has the parts of a page, as plain data. `sources.py` reads it, `figures.py` counts, `drawing/` draws each
figure once as plain shapes, and `html/` makes the page. Only `spark.py` needs Spark, and only PNGs need Pillow.
"""

from seriatim.pipeline.report.figures import figures_of
from seriatim.pipeline.report.html.page import render
from seriatim.pipeline.report.pages import Judgement, Page, PlanSection, RunSection, Section, SweepSection

__all__ = ["Judgement", "Page", "PlanSection", "RunSection", "Section", "SweepSection", "figures_of", "render"]
