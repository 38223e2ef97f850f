"""Figures: plain shapes (`shapes.py`), what is drawn with them, and the two writers, `svg.py` and `png.py`."""
