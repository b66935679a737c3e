"""The parts that users see: the command line, displays, figures, reports, logs, real devices."""

from metaroll.exports import lazy_exports

_MODULES = {
    "lab.logs.importing": ["load_log"],
    "lab.logs.lags": ["log_lag"],
    "lab.logs.mapping": ["LogColumn", "LogMapping"],
    "lab.logs.plausibility": ["check_log"],
    "lab.real.packets": ["Packet"],
    "lab.real.real_env": ["RealEnv"],
    "lab.real.simulated_device": ["PacketFaults", "SimulatedDevice"],
    "lab.real.socket_env": ["SocketEnv"],
    "lab.real.stopping": ["StopKey"],
    "lab.checking.task_checks": ["check_task_env"],
    "lab.checking.report": ["TaskCheck", "TaskEnvReport"],
    "lab.comparing.comparison": ["Comparison", "compare"],
    "lab.display.progress": ["TrainingDisplay"],
    "lab.inferring.inferring": ["infer"],
    "lab.results.robustness": ["RobustnessMap", "robustness_map"],
    "lab.figures.plots": ["plot_robustness"],
    "lab.figures.video": ["record_video", "write_video"],
    "lab.report.report": ["write_report"],
}

__getattr__, __dir__, __all__ = lazy_exports(__name__, _MODULES)  # pyright: ignore[reportUnsupportedDunderAll]
