"""``metaroll doctor``: one finding per line with its hint, whatever packages, plug-ins and workers do."""

from __future__ import annotations

import json
from importlib import metadata

import pytest

from metaroll.errors import one_line
from metaroll.lab.cli import doctor
from metaroll.lab.cli.doctor import Check, guarded
from metaroll.lab.cli.main import main
from metaroll.own_code import contributed
from metaroll.training.session.machine import Processors


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
    assert found["rollout"]["value"].startswith("20 steps in a worker process after")
    assert found["plug-ins"]["value"].startswith(f"{len(contributed())} in metaroll.contrib; of other packages: ")
    assert {"packages", "extra fast", "extra mujoco", "extra video", "plug-ins", "processors"} <= found.keys()
    assert list(tmp_path.iterdir()) == []  # looking leaves nothing behind


@pytest.fixture
def no_processes(monkeypatch):
    """The command with a finding for the check that starts a process."""
    monkeypatch.setattr(doctor, "rollout_check", lambda: Check("rollout", "ok", "20 steps"))


def test_quick_starts_no_worker(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "rollout_check", None)
    assert main(["doctor", "--quick"]) == 0
    out = capsys.readouterr().out
    assert "processors" in out
    assert "rollout" not in out
    assert "metaroll works here" in out


def test_a_failed_check_is_status_1_and_a_hint_is_not(capsys, monkeypatch, no_processes):
    monkeypatch.setattr(doctor, "processors_check", lambda: Check("processors", "warn", "few", "buy some"))
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "-> buy some" in out
    assert "metaroll works here" in out
    monkeypatch.setattr(doctor, "rollout_check", lambda: Check("rollout", "fail", "no worker [x]", "hint"))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "no worker [x]" in out
    assert "metaroll does not work here: 1 of" in out
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert main(["doctor", "--quiet"]) == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "line", "status"),
    [
        ("processors_check", "processors", 0),
        ("plugins_check", "plug-ins", 0),
        ("packages_check", "packages", 1),
        ("rollout_check", "rollout", 1),
    ],
)
def test_an_exception_in_a_check_is_a_line_and_never_a_traceback(capsys, monkeypatch, no_processes, name, line, status):
    def broken(*arguments):
        raise RuntimeError("the driver\nis on fire")

    monkeypatch.setattr(doctor, name, broken)
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
    assert found.value == f"no-such-thing is missing; rich {rich} is not >=99.1; tyro {tyro} is not <0.9.1,>=0.9"
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
    assert doctor.extras_in_use() == []


def test_extras_are_those_that_this_version_uses():
    found = doctor.extras_in_use()
    assert {"fast", "mujoco", "video"} <= set(found)
    assert not {"", "all", "dev"} & set(found)


def test_an_extra_that_is_missing_is_a_hint_with_its_line(monkeypatch):
    lines = ["gpu-of-nobody>=3; extra == 'video'", "numpy>=2; extra == 'fast'"]
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    found = doctor.extra_check("video")
    assert found.status == "skip"  # nobody has to have it
    assert found.value.startswith("optional: without it ") and found.value.endswith(" (gpu-of-nobody is missing)")
    assert found.hint == "pip install 'gpu-of-nobody>=3'"
    assert doctor.extra_check("fast").value == f"numpy {metadata.version('numpy')}"


def test_a_package_that_an_extra_of_another_package_needs_is_checked(monkeypatch):
    lines = {
        "metaroll": ["numpy[drawing]>=2; extra == 'video'"],
        "numpy": ["screen-of-nobody>=1; extra == 'drawing'", "ears-of-nobody; extra == 'sound'"],
    }
    monkeypatch.setattr(metadata, "requires", lines.__getitem__)
    found = doctor.extra_check("video")
    assert (found.status, found.hint) == ("skip", "pip install 'numpy[drawing]>=2'")
    assert found.value.endswith(" (screen-of-nobody is missing)")


# ------------------------------------------------------------------------------------------------------------ machine
def test_more_threads_than_a_container_allows_are_a_hint(monkeypatch):
    import torch

    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    monkeypatch.setattr(doctor, "processors", lambda: Processors(64, 32, 2.5))
    found = doctor.processors_check()
    assert found.status == "warn"
    assert found.value == "32 of 64, 2.5 of them at a time (container); threads of torch: 16"
    assert found.hint.endswith("export OMP_NUM_THREADS=2")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert doctor.processors_check().status == "ok"


def test_a_worker_that_does_not_start_is_a_failed_check(monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    found = guarded("rollout", doctor.rollout_check, essential=True)
    assert found.status == "fail"
    assert "WorkerLost" in found.value


def test_names_of_checks_are_unique(no_processes):
    names = [check.name for check in doctor.examine()]
    assert len(names) == len(set(names)) > 10
