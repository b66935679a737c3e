"""What is damaged: for each format whole files, and how they are read."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fuzz_damages as damages
import numpy as np
import torch

from metaroll.data.step_sequence import StepSequence
from metaroll.lab.cli.main import main

SINE = {
    "time": {"column": "t", "unit": "ms"},
    "observations": {"theta": {"column": "angle", "unit": "deg"}, "theta_dot": {"column": "speed", "unit": "rpm"}},
    "actions": {"torque": {"column": "u", "unit": "mN m", "bounds": [-9.0, 9.0]}},
}


@dataclasses.dataclass
class Kind:
    """A format.

    Attributes:
        make: Writes whole files into a folder; returns those that are damaged.
        read: What is read of the folder.
        sealed: Whether a changed bit may not be accepted with another value.
        changes: File, content -> name and content of damages of this format, beside those of bytes.
        texts: Whether the texts of ``damages.TEXTS`` are tried, too.
    """

    make: Callable[[Path], list[Path]]
    read: Callable[[Path], Any]
    sealed: bool
    changes: Callable[[Path, bytes, bool], Iterator[tuple[str, bytes | damages.Made]]] = lambda path, data, big: iter(
        ()
    )
    texts: bool = False


def digest(value: Any) -> str:
    """Equal for equal values, bit for bit."""
    total = hashlib.sha256()

    def add(item: Any) -> None:
        if isinstance(item, torch.Tensor):
            item = item.detach().cpu().view(torch.int16).numpy() if item.dtype == torch.bfloat16 else item.numpy()
        if isinstance(item, np.ndarray):
            total.update(f"{item.dtype.str}{item.shape}".encode())
            total.update(repr(item.tolist()).encode() if item.dtype.hasobject else item.tobytes())
        elif isinstance(item, dict):
            for key, inner in item.items():
                total.update(repr(key).encode())
                add(inner)
        elif isinstance(item, list | tuple):
            total.update(f"{type(item).__name__}{len(item)}".encode())
            for inner in item:
                add(inner)
        else:
            total.update(repr(item).encode())

    add(value)
    return total.hexdigest()


# ---- recordings ------------------------------------------------------------------------------------------------------


def steps(length: int = 6) -> StepSequence:
    rng = np.random.default_rng(5)
    done = np.arange(length) == length - 1
    return StepSequence(
        observations=rng.normal(size=(length + 1, 2)),
        actions=rng.normal(size=(length, 1)).astype(np.float32),
        rewards=rng.normal(size=length),
        terminated=done,
        truncated=np.zeros(length, bool),
        text=np.array([f"text {i}" for i in range(length)]),
        notes=np.array([{"i": i, "x": [1.5, None]} for i in range(length)], dtype=object),
        rollout_info={"dt": 0.01, "name": "fuzz", "mean": np.arange(3.0)},
    )


def recording(suffix: str) -> Callable[[Path], list[Path]]:
    def make(folder: Path) -> list[Path]:
        from metaroll.data.recordings import save_rollout

        path = folder / f"rollout_0000{suffix}"
        save_rollout(steps(), path)
        return [path]

    return make


def read_recording(folder: Path) -> Any:
    from metaroll.data.recording_format import to_recording
    from metaroll.data.recordings import load_rollouts

    [rollout] = load_rollouts(folder)
    return to_recording(rollout)


def npz_changes(path: Path, data: bytes, big: bool) -> Iterator[tuple[str, bytes | damages.Made]]:
    if path.suffix == ".npz":
        yield from damages.npz_changes(data, big)


def header_changes(path: Path, data: bytes, big: bool) -> Iterator[tuple[str, bytes | damages.Made]]:
    """Of the recording, its header with every entry replaced."""
    with np.load(io.BytesIO(data)) as file:
        arrays = {name: file[name] for name in file.files}
    for name, header in damages.json_changes(arrays["header"].tobytes()):
        yield f"header {name}", partial(with_header, arrays, header)
    yield from damages.npz_changes(data, big)


def with_header(arrays: dict[str, np.ndarray], header: damages.Made) -> bytes:
    out = io.BytesIO()
    np.savez(out, **{**arrays, "header": np.frombuffer(header(), np.uint8)})
    return out.getvalue()


# ---- logs ------------------------------------------------------------------------------------------------------------


def columns(rows: int = 20) -> dict[str, np.ndarray]:
    t = np.arange(rows) * 10.0
    return {"t": t, "angle": np.sin(t), "speed": np.full(rows, 30.0), "u": 100.0 * np.cos(t)}


def make_log(suffix: str) -> Callable[[Path], list[Path]]:
    def make(folder: Path) -> list[Path]:
        path, table = folder / f"log{suffix}", columns()
        if suffix == ".csv":
            rows = "\n".join(",".join(map(str, row)) for row in zip(*table.values(), strict=True))
            path.write_text(f"# by the robot\n{','.join(table)}\n{rows}\n")
        elif suffix == ".npz":
            np.savez(path, **table)
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({**table, "run": ["a", "b"] * 10}), path)
        return [path]

    return make


def read_log(suffix: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        from metaroll.data.recording_format import to_recording
        from metaroll.lab.logs.importing import load_log

        mapping = None if suffix == ".jsonl" else SINE
        return [to_recording(rollout) for rollout in load_log(folder / f"log{suffix}", mapping)]

    return read


def parquet_changes(path: Path, data: bytes, big: bool) -> Iterator[tuple[str, bytes]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def file(table: Any, **options: Any) -> bytes:
        out = pa.BufferOutputStream()
        pq.write_table(table, out, **options)
        return out.getvalue().to_pybytes()

    table = columns()
    rows = 3_000_000 if big else 300_000
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["x" * 700 * (1 if big else 9)])
    yield "a text a million times", file(pa.table({"t": texts, "u": texts}), compression="gzip")
    same = {name: np.zeros(rows) for name in table}
    yield "constant", file(pa.table({**same, "text": texts}), compression="zstd")
    if big:
        wide = {str(i): pa.array(np.zeros(rows, np.int8)) for i in range(60)}
        yield "wide", file(pa.table({**wide, **same}), compression="zstd")
        nulls = pa.nulls(40_000_000)
        yield "nulls", file(pa.table({"a": nulls, "b": nulls, "c": nulls}))
    yield "lists", file(pa.table({**table, "more": pa.array([[1, 2]] * 20)}))
    yield "groups", file(pa.table({**table, "t": pa.array([{"a": 1}] * 20)}))
    yield "texts", file(pa.table({**table, "t": ["x"] * 20}))
    yield "bytes", file(pa.table({**table, "t": [b"\xff"] * 20}))
    yield "missing", file(pa.table({**table, "t": pa.array([None] * 20, pa.float64())}))
    yield "dates", file(pa.table({**table, "t": pa.array(range(20), pa.date32())}))
    yield "times", file(pa.table({**table, "t": pa.array(range(20), pa.time64("us"))}))
    yield "twice", file(pa.Table.from_arrays([pa.array(table["t"])] * 2, names=["t", "t"]))
    yield "no rows", file(pa.table({name: values[:0] for name, values in table.items()}))
    yield "no columns", file(pa.table({}))
    whole = file(pa.table(table), compression="none")
    for place in range(4, min(len(whole) - 8, 300)):  # the header of the first page, byte by byte
        if place < 60 or big:
            yield f"byte {place}", whole[:place] + b"\xff" + whole[place + 1 :]
    length = struct.unpack("<I", whole[-8:-4])[0]
    for number in range(0, length, 1 if big else 12):
        place = len(whole) - 8 - length + number
        yield f"footer {number}", whole[:place] + bytes([whole[place] ^ 0x7F]) + whole[place + 1 :]


def make_robot_log(folder: Path) -> list[Path]:
    from gymnasium.spaces import Box

    from metaroll.lab.logs.robot_log import RobotLog
    from metaroll.types import EnvSpec

    spec = EnvSpec(Box(-np.inf, np.inf, (2,), np.float64), Box(-1.0, 1.0, (1,), np.float64))
    log = RobotLog(folder / "log.jsonl", spec, 0.1)
    log.first(np.zeros(2), 0.0)
    step = {"action": [0.5], "applied": [0.5], "observation": [1.0, 2.0], "reward": 1.0, "terminated": False}
    step |= {"truncated": False, "repeated": False, "late": False, "overrun": 0.0}
    for number in range(1, 5):
        log.write_step({**step, "time": 0.1 * number})
    log.end("done", {})
    return [log.path]


def lines(path: Path, data: bytes, big: bool) -> Iterator[tuple[str, bytes | damages.Made]]:
    return damages.line_changes(data)


# ---- mappings, configurations, results -------------------------------------------------------------------------------


def mapping(suffix: str) -> Callable[[Path], list[Path]]:
    def make(folder: Path) -> list[Path]:
        import yaml

        path = folder / f"mapping{suffix}"
        whole = {**SINE, "episode": "run", "terminated": "end", "dt": 0.02, "max_gap": 0.1, "outside": "clip"}
        path.write_text(json.dumps(whole) if suffix == ".json" else yaml.safe_dump(whole))
        return [path]

    return make


def read_mapping(suffix: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        from metaroll.lab.logs.mapping import LogMapping

        return dataclasses.asdict(LogMapping.load(folder / f"mapping{suffix}"))

    return read


def trees(path: Path, data: bytes, big: bool) -> Iterator[tuple[str, bytes | damages.Made]]:
    if path.suffix == ".json":
        yield from damages.json_changes(data)
    elif path.suffix in (".yaml", ".yml"):
        yield from damages.yaml_changes(data)
    elif path.suffix == ".jsonl":
        yield from damages.line_changes(data)


CONFIG: dict[str, Any] = {
    "command": "train",
    "algo": "pearl",
    "env": "point-robot",
    "run": {"seed": 3, "epochs": 5},
    "algorithm": {"discount": 0.9, "max_path_length": 100},
    "evaluation": {},
}


def make_run(folder: Path) -> list[Path]:
    """What a run of the command line leaves."""
    from metaroll.training.store.files import write_json
    from metaroll.training.store.metrics_log import MetricsLog
    from metaroll.training.store.run_folder import write_config
    from metaroll.training.store.snapshots import Snapshotter

    write_config(folder, CONFIG)
    metrics, snapshots = MetricsLog(folder), Snapshotter(folder)
    for epoch in range(3):
        metrics.append(
            epoch, 100 * epoch, "MetaTest", {"return_before": -9.0, "return_after": -1.0, "std": float("nan")}
        )
        metrics.append(epoch, 100 * epoch, "MetaTest", {"return_after": -1.0}, task="task 1")
        tree = {"x": 1, "w": torch.arange(5.0), "b": np.float64(3), "t": (1, "a", b"c"), "n": float("nan")}
        manifest = {"algorithm": "PEARL", "metrics_offset": metrics.flush(), "config": CONFIG}
        snapshots.save(epoch + 1, {"algo": tree, "buffers": {"d": np.arange(20.0)}}, manifest)
    write_json(folder / "summary.json", {"epochs": 3, "env_steps": 300, "return_after": -1.0, "per_task": []})
    result = {"epoch": 3, "return_after": -1.0, "return_before": -2.0, "per_task": [{"task": "a", "return_after": 1.0}]}
    write_json(folder / "evaluation.json", result)
    write_json(folder / "task_split.json", {"train": [1, 2], "test": [3]})
    names = ("config.yaml", "metrics.jsonl", "summary.json", "evaluation.json", "task_split.json")
    return [folder / name for name in names]


def read_config_file(folder: Path) -> Any:
    from metaroll.training.session.run_config import file_layer
    from metaroll.training.store.run_folder import read_config

    values = file_layer(folder / "config.yaml", "pearl", "point-robot")
    return read_config(folder), values


def make_config(folder: Path) -> list[Path]:
    from metaroll.training.store.run_folder import write_config

    write_config(folder, CONFIG)
    return [folder / "config.yaml"]


def make_group(folder: Path) -> list[Path]:
    from metaroll.training.store.run_folder import write_config

    write_config(folder, {**CONFIG, "seeds": [1, 2], "jobs": 2}, "group.yaml")
    return [folder / "group.yaml"]


def read_group_file(folder: Path) -> Any:
    from metaroll.training.session.run_config import read_group

    return read_group(folder)


def make_metrics(folder: Path) -> list[Path]:
    return [path for path in make_run(folder) if path.name == "metrics.jsonl"]


def read_metrics_file(folder: Path) -> Any:
    from metaroll.lab.runs.run_reports import read_run
    from metaroll.training.store.metrics_log import read_metrics

    read_run(folder)
    return read_metrics(folder)


def make_results(folder: Path) -> list[Path]:
    return [path for path in make_run(folder) if path.name not in ("config.yaml", "metrics.jsonl")]


def read_results(folder: Path) -> Any:
    from metaroll.lab.report.report import write_report
    from metaroll.lab.runs.report_facts import read_facts
    from metaroll.lab.runs.run_reports import read_run, read_summary

    read_run(folder)
    facts = read_facts(folder)
    with contextlib.suppress(ImportError):
        write_report(folder)
    with contextlib.suppress(ValueError):  # it names the file, and ``read_run`` goes on without it
        read_summary(folder)
    return facts.evaluation


# ---- snapshots -------------------------------------------------------------------------------------------------------


def make_snapshot(folder: Path) -> list[Path]:
    import metaroll.training.store.row_files as row_files
    from metaroll.data.replay.ring_rows import History, RingRows
    from metaroll.training.store.snapshots import Snapshotter

    block, row_files._BLOCK = row_files._BLOCK, 256
    try:
        tree = {"w": torch.arange(6.0), "h": torch.ones(2, dtype=torch.bfloat16), "t": (1, "a", b"c"), 3: float("nan")}
        rows = RingRows.of(np.arange(200.0).reshape(50, 4), 50, History())
        manifest = {"algorithm": "X", "metrics_offset": 0, "config": {"run": {"seed": 1}}}
        path = Snapshotter(folder).save(1, {"algo": tree, "buffers": {"d": rows, "n": 4}}, manifest)
    finally:
        row_files._BLOCK = block
    assert path is not None
    return sorted(path.iterdir())


def read_snapshot(folder: Path) -> Any:
    from metaroll.training.store.snapshots import load_snapshot

    snapshot = load_snapshot(folder)
    return snapshot.tree("algo"), snapshot.buffers, snapshot.manifest["metrics_offset"]


def sealed_manifest(tree: Any) -> Any:
    if isinstance(tree, dict) and "crc32" in tree:
        tree = {key: value for key, value in tree.items() if key != "crc32"}
        tree = {**tree, "crc32": zlib.crc32(json.dumps(tree, sort_keys=True).encode())}
    return tree


def manifest_changes(path: Path, data: bytes, big: bool) -> Iterator[tuple[str, bytes | damages.Made]]:
    if path.name in ("manifest.json", "posterior.json"):
        yield from damages.json_changes(data, sealed_manifest)
    elif path.suffix == ".json":
        yield from damages.json_changes(data)
    yield from npz_changes(path, data, big)


def make_tree(folder: Path) -> list[Path]:
    made = make_snapshot(folder)
    return [path for path in made if path.name in ("buffers.json", "algo.json", "algo.safetensors")]


def read_tree(folder: Path) -> Any:
    """Past the manifest, whose checksums would find all of it."""
    from metaroll.training.store.files import load_tree

    [path] = (folder / "snapshots").iterdir()
    return load_tree(path, "algo"), load_tree(path, "buffers")


def tensor_changes(path: Path, data: bytes, big: bool) -> Iterator[tuple[str, bytes | damages.Made]]:
    """Headers of safetensors with their checksums written down anew; see ``resealed``."""
    if path.suffix == ".json":
        yield from damages.json_changes(data)
    if path.suffix == ".safetensors":
        (length,) = struct.unpack("<Q", data[:8])
        for name, header in damages.json_changes(data[8 : 8 + length]):
            yield name, partial(with_tensor_header, header, data[8 + length :])
        for size in (2**63, 2**32, 99_999_999, len(data), 0):
            yield f"header of {size}", struct.pack("<Q", size) + data[8:]


def with_tensor_header(header: damages.Made, rest: bytes) -> bytes:
    made = header()
    return struct.pack("<Q", len(made)) + made + rest


def reseal(path: Path) -> None:
    """Write the checksum of a ``.safetensors`` file into the JSON beside it, so that what is behind it is reached."""
    with contextlib.suppress(OSError, ValueError):
        beside = path.with_suffix(".json")
        document = json.loads(beside.read_bytes())
        data = path.read_bytes()
        document["arrays"] = {"size": len(data), "crc32": zlib.crc32(data)}
        beside.write_text(json.dumps(document))


# ---- posteriors ------------------------------------------------------------------------------------------------------


def make_posterior(folder: Path) -> list[Path]:
    from metaroll.data.posteriors.folder import Draws, write_folder
    from metaroll.training.store.files import write_json

    draws = Draws(("gravity", "mass"), np.random.default_rng(0).uniform(1, 2, (30, 2)))
    told = {"num_draws": 30, "training": {"simulator": {"env": "pend-su", "recordings": "x"}}}
    path = write_folder(folder / "posterior", draws, told, {"w": torch.arange(6.0), "b": torch.ones(2)})
    write_json(folder / "inference.json", {"checks": {"passed": True, "text": "fine"}})
    return [*sorted(path.iterdir()), folder / "inference.json"]


def read_posterior(folder: Path) -> Any:
    from metaroll.data.posteriors.folder import read_description, read_draws, read_weights
    from metaroll.envs.lookup.posteriors import _failed_checks

    _failed_checks(str(folder), folder / "posterior")
    return read_description(folder)["names"], read_draws(folder), read_weights(folder)


def make_draws(folder: Path) -> list[Path]:
    make_posterior(folder)
    path = (folder / "posterior" / "draws.npz").rename(folder / "draws.npz")
    return [path]


def read_alone(folder: Path) -> Any:
    from metaroll.data.posteriors.folder import read_draws

    return read_draws(folder / "draws.npz")


def run_simulations(folder: Path) -> Any:
    from metaroll.inference.priors import as_prior
    from metaroll.inference.simulations import SimulationStore

    prior = as_prior({"a": (0.0, 1.0), "b": (0.0, 1.0)})
    store = SimulationStore(prior, folder)

    def draw(block: int, count: int) -> np.ndarray:
        return np.random.default_rng(block).uniform(size=(8, 2))[:count]

    found = store.run(lambda thetas: thetas**2, 1, 16, "0123456789ab", draw, 8)
    return found.thetas, found.features


def make_simulations(folder: Path) -> list[Path]:
    run_simulations(folder)
    return sorted(folder.glob("*.npz"))[:1]


# ---- commands --------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> str:
    """What a command has said; an error if that is an internal one."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(arguments))
    told = err.getvalue()
    if "internal error" in told or "Traceback" in told or status not in (0, 1, 2):
        raise AssertionError(f"metaroll {' '.join(arguments)}: {status}: {told[-800:]}")
    return told


def read_commands(folder: Path) -> Any:
    name = str(folder)
    command("list", "runs", "--runs", name, "--json")
    command("report", name, "--no-pictures")
    command("evaluate", name)
    command("compare", name)


def read_trained(folder: Path) -> Any:
    name = str(folder)
    command("list", "runs", "--runs", name, "--json")
    command("evaluate", name, "--json", "--quiet")


_TRAINED: list[tuple[str, bytes]] = []


def make_trained(folder: Path) -> list[Path]:
    """A run that can be evaluated; trained once."""
    if not _TRAINED:
        place = folder / "first"
        small = ("--epochs", "1", "--max-steps", "5")
        command("train", "cem", "CartPole-v1", *small, "--out", str(place), "--quiet")
        assert (place / "summary.json").is_file()
        for path in sorted(place.rglob("*")):
            if path.is_file() and path.suffix in (".yaml", ".json", ".jsonl", ".safetensors"):
                _TRAINED.append((str(path.relative_to(place)), path.read_bytes()))
        import shutil

        shutil.rmtree(place)
    made = []
    for name, data in _TRAINED:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        made.append(path)
    return made


def read_import(folder: Path) -> Any:
    out = folder / "out"
    command("import-log", str(folder / "log.jsonl"), "--out", str(out), "--overwrite")
    mapping_file = folder / "mapping.json"
    command("import-log", str(folder / "log.csv"), "--mapping", str(mapping_file), "--out", str(out), "--overwrite")
    command("infer", "pend-su", "--data", str(folder), "--out", str(folder / "inferred"))
    command("infer", "pend-su", "--data", str(out), "--param", "nothing", "--out", str(folder / "inferred"))


def make_import(suffix: str) -> Callable[[Path], list[Path]]:
    def make(folder: Path) -> list[Path]:
        if suffix == ".jsonl":
            return make_robot_log(folder)
        path = folder / "mapping.json"
        path.write_text(json.dumps(SINE))
        return [*make_log(suffix)(folder), path]

    return make


NAMES = [
    *("module:attr", "os:system", "os:nothing", ":x", "x:", "a:b:c", "json:", "..:x", "metaroll:Rollouts", "os:path"),
    *("metaworld:", "metaworld:ML1-", "metaworld:ML1-nothing-v3", "metaworld:MT1-reach-v3@x", "metaworld:" + "x" * 999),
    *(
        "pend-su@",
        "@x",
        "pend-su@nowhere",
        "pend-su@/dev/null",
        "pend-su@/dev/zero",
        "nothing@/tmp",
        "pend-su@~nobody/x",
    ),
    *(
        "pend-su@a@b",
        "pend-su@" + "x" * 5000,
        "pend-su@a\0b",
        "",
        " ",
        "\0",
        "x" * 100_000,
        "é",
        "\udcff",
        "a/b",
        "../x",
    ),
    *(
        "CartPole",
        "CartPole-v99",
        "ALE/Pong-v5",
        "CartPole-v1:x",
        "point-robot@x",
        "--help",
        "point robot",
        "\n",
        "a\nb",
    ),
]


def read_name(name: str) -> Any:
    from metaroll.envs.lookup.registry import get_family
    from metaroll.envs.lookup.source import EnvSource

    EnvSource.of(name).known.has_family  # noqa: B018
    with contextlib.suppress(ValueError, OSError, ImportError, TypeError, KeyError):
        EnvSource.of(name).make().close()
    return get_family(name).name


KINDS: dict[str, Kind] = {
    "recording npz": Kind(recording(".npz"), read_recording, True, header_changes, True),
    "recording csv": Kind(recording(".csv"), read_recording, True, texts=True),
    "recording parquet": Kind(recording(".parquet"), read_recording, True, parquet_changes),
    "log csv": Kind(make_log(".csv"), read_log(".csv"), False, texts=True),
    "log npz": Kind(make_log(".npz"), read_log(".npz"), True, npz_changes),
    "log parquet": Kind(make_log(".parquet"), read_log(".parquet"), False, parquet_changes),
    "log jsonl": Kind(make_robot_log, read_log(".jsonl"), False, lines, True),
    "mapping yaml": Kind(mapping(".yaml"), read_mapping(".yaml"), False, trees, True),
    "mapping json": Kind(mapping(".json"), read_mapping(".json"), False, trees, True),
    "posterior": Kind(make_posterior, read_posterior, True, manifest_changes, True),
    "draws": Kind(make_draws, read_alone, True, npz_changes),
    "simulations": Kind(make_simulations, run_simulations, True, npz_changes),
    "snapshot": Kind(make_snapshot, read_snapshot, True, manifest_changes, True),
    "tree": Kind(make_tree, read_tree, False, tensor_changes, True),
    "config": Kind(make_config, read_config_file, False, trees, True),
    "group": Kind(make_group, read_group_file, False, trees, True),
    "metrics": Kind(make_metrics, read_metrics_file, False, trees, True),
    "results": Kind(make_results, read_results, False, trees, True),
    "commands": Kind(make_run, read_commands, False, trees, True),
    "commands of a trained run": Kind(make_trained, read_trained, False, trees),
    "import csv": Kind(make_import(".csv"), read_import, False, trees, True),
    "import jsonl": Kind(make_import(".jsonl"), read_import, False, trees),
}
COMMANDS = ("commands", "commands of a trained run", "import csv", "import jsonl")
"""Kinds that are read by commands."""
