"""``module:attribute`` names environments and families of one's own."""

from __future__ import annotations

import sys

import pytest
from task_envs import Line, ToldByReset

from metaroll import RolloutEngine, RolloutPlan, TaskFamily, get_family, make_slots
from metaroll.envs.lookup.registry import family_names, is_entry_point
from metaroll.envs.lookup.source import EnvSource, make_env
from metaroll.errors import UnknownNameError
from metaroll.own_code import OwnCodeError
from metaroll.policies.playback import DummyPolicy
from metaroll.types import EnvSpec


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("task_envs:Line", True),
        ("package.module:Outer.inner", True),
        ("Pendulum-v1", False),
        ("package:Env-v0", False),
        ("metaroll/Pendulum-v0", False),
        ("file.py:", False),
        (":Line", False),
    ],
)
def test_which_names_are_of_this_form(name, own):
    assert is_entry_point(name) is own


def test_an_environment_with_tasks_is_a_family():
    family = get_family("task_envs:Line")
    assert (family.name, family.env_constructor) == ("task_envs:Line", Line)
    source = EnvSource.of("task_envs:Line")
    assert source.family is family and source.known.has_family and source.is_varied
    assert get_family("task_envs:Line") is family
    assert "task_envs:Line" not in family_names()
    assert isinstance(make_env("task_envs:Line"), Line)
    assert isinstance(get_family("task_envs:make_line").env_constructor(), Line)


def test_a_function_may_make_the_family():
    assert isinstance(get_family("task_envs:locked"), TaskFamily)
    assert isinstance(make_env("task_envs:locked"), Line)


def test_an_environment_without_tasks_is_an_environment():
    assert not EnvSource.of("task_envs:ToldByReset").known.has_family
    assert isinstance(make_env("task_envs:ToldByReset"), ToldByReset)
    slots = make_slots("task_envs:ToldByReset", 2)
    slots.close()
    with pytest.raises(TypeError, match="ToldByReset has no sample_tasks"):
        get_family("task_envs:ToldByReset")


def test_workers_know_the_name(shared_pools):
    plans = [RolloutPlan(i, (0, 0, i), max_steps=3) for i in range(2)]
    with RolloutEngine("task_envs:Line", DummyPolicy(EnvSpec.from_env(Line())), pool=shared_pools[2]) as engine:
        assert [len(rollout) for rollout in engine.run(plans)] == [3, 3]


def test_mistakes_are_told():
    with pytest.raises(UnknownNameError, match="no module 'no_such_file' in the current folder"):
        get_family("no_such_file:Line")
    with pytest.raises(UnknownNameError, match="unknown name in task_envs 'Lime'; did you mean 'Line'"):
        get_family("task_envs:Lime")
    with pytest.raises(OwnCodeError, match="environment cannot be made: RuntimeError: no license"):
        get_family("task_envs:no_license")
    with pytest.raises(TypeError, match="must be a TaskFamily, a class or function"):
        get_family("math:pi")
    with pytest.raises(UnknownNameError, match="unknown environment 'task_envs:Line-v0'"):
        make_env("task_envs:Line-v0")


def test_a_module_that_fails_says_how(tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text("import no_such_package\n")
    (tmp_path / "crashing_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OwnCodeError, match=r"broken_module cannot be imported.*No module named 'no_such_package'"):
        get_family("broken_module:Env")
    with pytest.raises(OwnCodeError, match="ZeroDivisionError: division by zero"):
        get_family("crashing_module:Env")


def test_drawing_that_does_not_work_is_not_blamed_on_the_module(tmp_path, monkeypatch):
    """As with MUJOCO_GL=osmesa on a machine without OSMesa: an error of OpenGL, while MuJoCo is imported."""
    (tmp_path / "OpenGL").mkdir()
    (tmp_path / "OpenGL" / "__init__.py").write_text("None.glGetError")
    (tmp_path / "draws.py").write_text("try:\n    import OpenGL\nexcept AttributeError:\n    raise ImportError('a')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "OpenGL"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(
        OwnCodeError, match=r"MUJOCO_GL=osmesa asks for .* \(AttributeError: .*unset MUJOCO_GL"
    ) as caught:
        get_family("draws:Env")
    assert "the same happens" not in str(caught.value)
    monkeypatch.delenv("MUJOCO_GL")
    with pytest.raises(OwnCodeError, match=r"draws cannot be imported .* ImportError: a; the same happens in"):
        get_family("draws:Env")
    sys.modules.pop("draws", None)


def test_other_ways_to_write_a_name_of_ones_own_are_told_the_right_one(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    for folder in (tmp_path, tmp_path / "there"):
        (folder / "my_env_here.py").write_text("class Hidden: ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    right = "unknown environment '{}': write it as my_env_here:Hidden{}$"
    there = str(tmp_path / "there" / "my_env_here")
    elsewhere = f", and run in its folder, {tmp_path / 'there'}"
    for name, more in (
        ("./my_env_here.py:Hidden", ""),
        ("my_env_here.py:Hidden", ""),
        (str(tmp_path / "my_env_here.py") + ":Hidden", ""),
        (f"{there}.py:Hidden", elsewhere),
        (f"{there}:Hidden", elsewhere),
        ("there/my_env_here.py:Hidden", ", and run in its folder, there"),
    ):
        for look in (make_env, get_family):
            with pytest.raises(UnknownNameError, match=right.format(name, more)):
                look(name)
    (tmp_path / "there" / "beside.py").touch()
    monkeypatch.chdir(tmp_path / "there")  # which is not on the path
    with pytest.raises(UnknownNameError, match=r"'beside:Hidden': beside.py lies in the current folder.*PYTHONPATH"):
        make_env("beside:Hidden")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownNameError, match=r"write it as no_env:Hidden.*there is no file .*no_env.py"):
        make_env("./no_env.py:Hidden")
    with pytest.raises(UnknownNameError, match="did you mean 'my_env_here:Hidden'"):
        make_env("my_env_here.Hidden")
