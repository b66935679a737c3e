"""Algorithms and searches on the public interface alone, one file each: plug-ins that come with metaroll."""

from metaroll.exports import lazy_exports

_MODULES = {
    "contrib.epopt": ["EPOpt"],
    "contrib.openai_es": ["OpenAIES"],
    "contrib.pgpe": ["PGPE"],
    "contrib.snes": ["SNES"],
    "contrib.distillation": ["Distillation"],
    "contrib.tqc": ["TQC"],
    "contrib.recurrent_sac": ["RecurrentCritics", "RecurrentSAC"],
    "contrib.discrete_sac": ["DiscreteSAC"],
}

__getattr__, __dir__, __all__ = lazy_exports(__name__, _MODULES)  # pyright: ignore[reportUnsupportedDunderAll]
