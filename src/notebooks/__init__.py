"""What a notebook uses, for readers who play: whose code runs, controls with a picture, measurements.

A notebook begins with ``%load_ext notebooks``; ``%impl learner`` and ``%impl solution`` say whose package runs.
"""

from coursekit.lab import Lab
from coursekit.palette import COLORS, PALE
from notebooks.controls import choice, explore, slider, switch
from notebooks.measuring import measure
from notebooks.pictures import Picture, new_figure
from notebooks.recording import Recorded, recorded
from notebooks.session import load_ipython_extension

lab = Lab()
"""The door to the package that runs: ``lab.attention.softmax`` is always the newest version of the file."""

__all__ = [
    "COLORS",
    "PALE",
    "Picture",
    "Recorded",
    "choice",
    "explore",
    "lab",
    "load_ipython_extension",
    "measure",
    "new_figure",
    "recorded",
    "slider",
    "switch",
]
