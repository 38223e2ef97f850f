"""Figures: plain shapes (`shapes.py`), the drawings made of them, and the two writers, `svg.py` and `png.py`."""
