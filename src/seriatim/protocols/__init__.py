"""The ordering protocols, one folder each. `machine.py` is the seam to whatever drives them."""
