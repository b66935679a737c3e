"""The public names of metaroll.lab, and where they are defined; written by tools/stubs.py."""

from metaroll.lab.checking.report import TaskCheck, TaskEnvReport
from metaroll.lab.checking.task_checks import check_task_env
from metaroll.lab.comparing.comparison import Comparison, compare
from metaroll.lab.display.progress import TrainingDisplay
from metaroll.lab.figures.plots import plot_robustness
from metaroll.lab.figures.video import record_video, write_video
from metaroll.lab.inferring.inferring import infer
from metaroll.lab.logs.importing import load_log
from metaroll.lab.logs.lags import log_lag
from metaroll.lab.logs.mapping import LogColumn, LogMapping
from metaroll.lab.logs.plausibility import check_log
from metaroll.lab.real.packets import Packet
from metaroll.lab.real.real_env import RealEnv
from metaroll.lab.real.simulated_device import PacketFaults, SimulatedDevice
from metaroll.lab.real.socket_env import SocketEnv
from metaroll.lab.real.stopping import StopKey
from metaroll.lab.report.report import write_report
from metaroll.lab.results.robustness import RobustnessMap, robustness_map

__all__ = [
    "Comparison",
    "LogColumn",
    "LogMapping",
    "Packet",
    "PacketFaults",
    "RealEnv",
    "RobustnessMap",
    "SimulatedDevice",
    "SocketEnv",
    "StopKey",
    "TaskCheck",
    "TaskEnvReport",
    "TrainingDisplay",
    "check_log",
    "check_task_env",
    "compare",
    "infer",
    "load_log",
    "log_lag",
    "plot_robustness",
    "record_video",
    "robustness_map",
    "write_report",
    "write_video",
]
