"""``metaroll doctor``: one finding per line with its hint, whatever packages, drivers and folders do."""

from __future__ import annotations

import json
import os
import re
import time
from importlib import metadata

import pytest

from metaroll.lab.checking.report import one_line
from metaroll.lab.cli import doctor
from metaroll.lab.cli.doctor import Check, backend_answers, gpu_finding, guarded, picture_finding
from metaroll.lab.cli.main import main
from metaroll.training.session import machine
from metaroll.training.session.machine import Memory, Probe, Processors, without_screen

GIB = 2**30
PACKAGES = ("numpy", "scipy", "torch", "gymnasium")


# ------------------------------------------------------------------------------------------------- the whole command
def test_this_machine_passes_and_the_json_is_all_there_is(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status = main(["doctor", "--json"])
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    found = {check["name"]: check for check in document["checks"]}
    assert (status, document["ok"], captured.err) == (0, True, "")
    assert all(check["status"] in ("ok", "warn") for check in found.values())
    assert all(check["hint"] for check in found.values() if check["status"] == "warn")
    assert metadata.version("metaroll") in found["metaroll"]["value"]
    assert str(tmp_path) in found["runs folder"]["value"]
    times = re.match(
        r"first rollout after (.*) s \(the process alone is there after (.*) s", found["worker start"]["value"]
    )
    assert times and 0 < float(times[2]) < float(times[1])
    assert "4 rollouts have the same bits" in found["self-test"]["value"]
    assert {"extra fast", "extra mujoco", "extra plot", "rendering", "MuJoCo rendering", "GPU"} <= found.keys()
    assert list(tmp_path.iterdir()) == []  # looking leaves nothing behind


@pytest.fixture
def no_processes(monkeypatch):
    """The command with the checks that start processes replaced by findings."""
    monkeypatch.setattr(doctor, "gpu_check", lambda seconds: Check("GPU", "ok", "none"))
    monkeypatch.setattr(doctor, "PICTURES", {})
    monkeypatch.setattr(doctor, "worker_check", lambda seconds: Check("worker start", "ok", "ready"))
    monkeypatch.setattr(doctor, "self_test", lambda seconds: Check("self-test", "ok", "same bits"))


def test_quick_starts_no_workers_and_draws_nothing(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "worker_check", None)
    monkeypatch.setattr(doctor, "picture_probes", None)
    assert main(["doctor", "--quick"]) == 0
    out = capsys.readouterr().out
    assert "temporary folder" in out
    assert "GPU" in out
    assert "worker" not in out.replace("metaroll's workers", "")
    assert "metaroll works here" in out


def test_a_failed_check_is_status_1_and_a_hint_is_not(capsys, monkeypatch, no_processes):
    monkeypatch.setattr(doctor, "memory_check", lambda: Check("memory", "warn", "little", "buy some"))
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "-> buy some" in out
    assert "metaroll works here" in out
    monkeypatch.setattr(doctor, "self_test", lambda seconds: Check("self-test", "fail", "bits differ [x]", "hint"))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "bits differ [x]" in out
    assert "metaroll does not work here: 1 of" in out
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert main(["doctor", "--quiet"]) == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("module", "name", "line", "status"), [
    (doctor, "memory_check", "memory", 0),
    (doctor, "packages_check", "packages", 1),
    (doctor, "worker_check", "worker start", 1),
    (doctor, "gpu_check", "GPU", 0),
])  # fmt: skip
def test_an_exception_in_a_check_is_a_line_and_never_a_traceback(
    capsys, monkeypatch, no_processes, module, name, line, status
):
    def broken(*arguments):
        raise RuntimeError("the driver\nis on fire")

    monkeypatch.setattr(module, name, broken)
    assert main(["doctor", "--json"]) == status
    captured = capsys.readouterr()
    (found,) = [check for check in json.loads(captured.out)["checks"] if check["name"] == line]
    assert found["status"] == ("fail" if status else "warn")
    assert found["value"] == "RuntimeError: the driver is on fire"
    assert captured.err == ""


def test_an_error_that_cannot_say_what_it_is_has_a_line_still():
    class GLError(Exception):
        def __str__(self):
            raise ValueError

    def broken():
        raise GLError

    assert guarded("x", broken).value == "GLError"
    assert len(one_line(ValueError("y" * 1000))) == 300


# ----------------------------------------------------------------------------------------------------------- packages
def test_a_missing_an_old_and_a_broken_package_are_named_with_the_line_that_mends_them(monkeypatch):
    monkeypatch.setattr(
        metadata,
        "requires",
        lambda name: [
            *("numpy>=2.0", "no-such-thing>=1.5", "rich>=99.1", "yaml_of_nobody; extra == 'x'"),
            *("tyro>=0.9,<0.9.1", "of-old-times>=1; python_version < '3'"),
        ],
    )
    found = doctor.packages_check()
    assert found.status == "fail"
    rich, tyro = metadata.version("rich"), metadata.version("tyro")
    assert found.value == f"no-such-thing is missing; rich {rich} is older than 99.1; tyro {tyro} is not <0.9.1,>=0.9"
    assert found.hint == "pip install 'no-such-thing>=1.5' 'rich>=99.1' 'tyro<0.9.1,>=0.9'"


def test_a_package_that_cannot_be_imported_fails(monkeypatch):
    def broken(name):
        raise ImportError("libtorch.so: no such file")

    monkeypatch.setattr(metadata, "requires", lambda name: ["torch>=2.4"])
    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    found = doctor.packages_check()
    assert (found.status, found.value) == (
        "fail",
        "torch cannot be imported (ImportError: libtorch.so: no such file)",
    )


def test_a_metaroll_that_is_not_installed_says_so(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", absent)
    found = guarded("packages", doctor.packages_check, essential=True)
    assert found.status == "fail"
    assert "pip install -e ." in found.value


def test_extras_are_those_that_this_version_uses():
    found = doctor.extras_in_use()
    assert {"fast", "mujoco", "plot"} <= set(found)
    assert not {"", "all", "dev"} & set(found)


def test_an_extra_that_is_missing_is_a_hint_with_its_line(monkeypatch):
    lines = ["gpu-of-nobody>=3; extra == 'plot'", "numpy>=2; extra == 'fast'"]
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    found = doctor.extra_check("plot")
    assert found.status == "skip"  # nobody has to have it
    assert found.value == "optional: runs have no pictures without it (gpu-of-nobody is missing)"
    assert found.hint == "pip install 'gpu-of-nobody>=3'"
    assert doctor.extra_check("fast").value == f"numpy {metadata.version('numpy')}"


# ------------------------------------------------------------------------------------------------------------ machine
def test_more_threads_than_a_container_allows_are_a_hint(monkeypatch):
    import torch

    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    monkeypatch.setattr(doctor, "processors", lambda: Processors(64, 32, 2.5))
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    found = doctor.threads_check()
    assert found.status == "warn"
    assert "OMP_NUM_THREADS=16" in found.value
    assert found.hint.endswith("export OMP_NUM_THREADS=2")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert doctor.threads_check().status == "ok"


def test_little_memory_and_busy_processors_are_hints(monkeypatch):
    monkeypatch.setattr(doctor, "memory", lambda: Memory(4 * GIB, GIB))
    found = doctor.memory_check()
    assert (found.status, found.value) == ("warn", "1.0 GiB free of 4.0 GiB")
    monkeypatch.setattr(doctor, "processors", lambda: Processors(8, 4, 1.5))
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (0.25, 0.0, 0.0))
    assert doctor.processors_check().value == "4 of 8, 1.5 of them at a time (container); load 0.2"
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (12.0, 0.0, 0.0))
    assert doctor.processors_check().status == "warn"


def test_a_folder_that_cannot_be_written_is_named_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("a file where the folder should be")
    found = doctor.runs_folder_check()
    assert (found.status, found.hint) == ("warn", "choose a place with --out DIR")
    assert f"{tmp_path}/runs cannot be written (Not a directory)" in found.value
    monkeypatch.setattr(doctor.tempfile, "gettempdir", lambda: str(tmp_path / "gone"))
    found = doctor.temporary_folder_check()
    assert (found.status, found.hint.rpartition("export ")[2]) == ("fail", "TMPDIR=DIR")


def test_a_disk_that_is_nearly_full_is_a_hint(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 2**28}))
    found = doctor.temporary_folder_check()
    assert (found.status, found.value) == ("warn", f"{tmp_path}, 0.2 GiB free")


# ------------------------------------------------------------------------------------------------------------ drivers
def test_gpus_are_shown_with_their_memory():
    devices = [{"name": "NVIDIA X", "total": 8 * GIB, "free": 6 * GIB}]
    found = gpu_finding("torch built for CUDA 12.6", {"devices": devices}, has_card=True)
    assert found.status == "ok"
    assert found.value.startswith("NVIDIA X, 6.0 GiB free of 8.0 GiB")


def test_a_gpu_that_does_not_start_is_a_hint_with_the_words_of_the_driver():
    error = "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update it"
    found = gpu_finding("torch built for CUDA 12.6", {"error": error}, has_card=True)
    assert found.status == "warn"
    assert "too old (found version 11040). Please update it" in found.value
    assert "driver" in found.hint
    found = gpu_finding("torch built for CUDA 12.6", {"error": error}, has_card=False)
    assert (found.status, "too old" in found.value, "Please update" in found.value) == ("ok", True, False)


def test_a_gpu_beside_a_torch_for_the_cpu_is_a_hint_and_no_gpu_is_fine():
    assert gpu_finding("torch built for the CPU", {"error": None}, has_card=True).hint.startswith("install a build")
    found = gpu_finding("torch built for the CPU", {"error": None}, has_card=False)
    assert (found.status, found.value) == ("ok", "none: training runs on the CPU (torch built for the CPU)")


def test_a_picture_says_who_drew_it():
    drawn = {"shape": [480, 640, 3], "blank": False, "backend": "egl"}
    found = picture_finding("MuJoCo rendering", {"given": drawn}, "egl")
    assert (found.status, found.value) == ("ok", "HalfCheetah-v5 drawn by egl, 640 x 480, MUJOCO_GL=egl")
    blank = picture_finding("MuJoCo rendering", {"given": {**drawn, "blank": True}}, None)
    assert (blank.status, "the picture is blank" in blank.value) == ("warn", True)


def test_no_picture_is_a_hint_with_the_cure_that_fits():
    failed = {"error": "FatalError: no OpenGL"}
    drawn = {"shape": [480, 640, 3], "blank": False, "backend": "glfw"}
    found = picture_finding("MuJoCo rendering", {"given": failed, "free": drawn}, "egl")
    assert found.value == "HalfCheetah-v5 cannot be drawn, MUJOCO_GL=egl: FatalError: no OpenGL"
    assert found.hint == "unset MUJOCO_GL: glfw works here"
    assert "libegl1" in picture_finding("MuJoCo rendering", {"given": failed, "free": failed}, "egl").hint
    answers = {"given": failed, "egl": failed, "osmesa": {**drawn, "backend": "osmesa"}}
    found = picture_finding("MuJoCo rendering", answers, None)
    assert found.value.endswith("no OpenGL; MUJOCO_GL=egl does not, either; MUJOCO_GL=osmesa works")
    assert found.hint == "export MUJOCO_GL=osmesa"
    assert "libosmesa6" in picture_finding("MuJoCo rendering", {**answers, "osmesa": failed}, None).hint
    assert "classic-control" in picture_finding("rendering", {"given": failed}, None).hint
    assert picture_finding("MuJoCo rendering", {}, None).hint == "pip install 'imageio>=2.34' 'mujoco>=3.2'"


def test_other_ways_to_draw_are_tried_only_where_the_usual_one_fails():
    drawn = {"shape": [480, 640, 3], "blank": False, "backend": "glfw"}
    assert backend_answers("MuJoCo rendering", {"given": drawn}, 20.0) == {}
    assert backend_answers("rendering", {"given": {"error": "no pygame"}}, 20.0) == {}
    tried = backend_answers("MuJoCo rendering", {"given": {"error": "no screen"}}, 20.0)
    assert set(tried) == {"egl", "osmesa"} - {os.environ.get("MUJOCO_GL")}
    assert all(("shape" in answer) != ("error" in answer) for answer in tried.values())


def test_what_draws_without_a_screen_is_found_and_used_for_the_time_of_the_block(monkeypatch):
    answers = {"egl": {"error": "no EGL"}, "osmesa": {"shape": [480, 640, 3], "blank": False}}

    class Answers:
        def __init__(self, name: str, *arguments: str, environment: dict[str, str], **options: float) -> None:
            self.backend = environment["MUJOCO_GL"]

        def __enter__(self) -> Answers:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def answer(self) -> dict[str, object]:
            return answers[self.backend]

    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "Probe", Answers)
    monkeypatch.setattr(machine.sys, "platform", "linux")
    monkeypatch.setitem(machine.sys.modules, "mujoco", object())
    with without_screen() as backend:
        assert (backend, os.environ["MUJOCO_GL"]) == ("osmesa", "osmesa")
    assert "MUJOCO_GL" not in os.environ
    answers["osmesa"] = {"error": "no OSMesa"}
    with without_screen() as backend:
        assert backend is None
        assert "MUJOCO_GL" not in os.environ
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with without_screen() as backend:
        assert (backend, os.environ["MUJOCO_GL"]) == (None, "egl")


DRIVERS = {
    "hangs": ("import time\ntime.sleep(60)", "no answer within 3 s"),
    "crashes": (
        "import os, signal, sys\nprint('driver: lost its mind', file=sys.stderr)\nos.kill(os.getpid(), signal.SIGKILL)",
        "its process ended with SIGKILL: driver: lost its mind",
    ),
    "leaves": ("import os\nos._exit(7)", "its process ended with status 7"),
    "raises": ("raise OSError('no GL library')", "OSError: no GL library"),
    "chatters": ("print('{not json')\nraise OSError('no GL library')", "OSError: no GL library"),
}


@pytest.mark.parametrize("fault", DRIVERS)
def test_a_driver_that_crashes_or_hangs_takes_only_its_probe_down(tmp_path, monkeypatch, fault):
    """The import of an environment's module stands for the driver; its process is gone afterwards (conftest looks)."""
    code, message = DRIVERS[fault]
    (tmp_path / f"driver_that_{fault}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    started = time.monotonic()
    seconds = 3 if fault == "hangs" else 30
    with Probe("picture", f"driver_that_{fault}:Picture-v0", seconds=seconds) as probe:
        assert message in probe.answer()["error"]
    assert time.monotonic() - started < 20


def test_a_probe_that_is_not_waited_for_is_ended_at_once(tmp_path, monkeypatch):
    (tmp_path / "slow_driver.py").write_text("import subprocess\nsubprocess.run(['sleep', '60'])")
    monkeypatch.syspath_prepend(tmp_path)
    started = time.monotonic()
    with Probe("picture", "slow_driver:Picture-v0", seconds=50):
        time.sleep(1.0)
    assert time.monotonic() - started < 10


def test_a_probe_has_its_own_environment_variables(tmp_path, monkeypatch):
    (tmp_path / "asking_driver.py").write_text("import os\nraise OSError(os.environ.get('MUJOCO_GL', 'unset'))")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    for variables, seen in (({}, "egl"), ({"MUJOCO_GL": None}, "unset"), ({"MUJOCO_GL": "osmesa"}, "osmesa")):
        with Probe("picture", "asking_driver:Picture-v0", seconds=30, environment=variables) as probe:
            assert probe.answer() == {"error": f"OSError: {seen}"}


# ------------------------------------------------------------------------------------------------------------- engine
def test_bits_that_depend_on_workers_fail_the_self_test(monkeypatch):
    from metaroll.rollouts.single import replay as invariance

    def differ(*arguments, **keywords):
        raise AssertionError("rollout 2 differs when run by 2 worker(s): rewards at step 3")

    monkeypatch.setattr(invariance, "assert_worker_invariant", differ)
    found = doctor.self_test(20.0)
    assert (found.status, found.value) == ("fail", "rollout 2 differs when run by 2 worker(s): rewards at step 3")


def test_workers_that_do_not_start_are_a_failed_check(monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    found = guarded("worker start", lambda: doctor.worker_check(20.0), essential=True)
    assert found.status == "fail"
    assert "WorkerLost" in found.value


def test_names_of_checks_are_unique(no_processes):
    names = [check.name for check in doctor.examine()]
    assert len(names) == len(set(names)) > 10
