"""Figures of runs: each is made by a pure function from rows, or from a fit, to a Matplotlib figure."""
