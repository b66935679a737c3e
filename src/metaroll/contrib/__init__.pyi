"""The public names of metaroll.contrib, and where they are defined; written by tools/stubs.py."""

from metaroll.contrib.discrete_sac import DiscreteSAC
from metaroll.contrib.distillation import Distillation
from metaroll.contrib.epopt import EPOpt
from metaroll.contrib.openai_es import OpenAIES
from metaroll.contrib.pgpe import PGPE
from metaroll.contrib.recurrent_sac import RecurrentCritics, RecurrentSAC
from metaroll.contrib.snes import SNES
from metaroll.contrib.tqc import TQC

__all__ = [
    "PGPE",
    "SNES",
    "TQC",
    "DiscreteSAC",
    "Distillation",
    "EPOpt",
    "OpenAIES",
    "RecurrentCritics",
    "RecurrentSAC",
]
