"""Runs of others: what they name is imported only when the user says so, and what they hold is never executed."""

import hashlib
import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import metaroll
from metaroll.data.doors.yaml_files import read_yaml
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import RunWarning, SnapshotError, UntrustedRunError
from metaroll.inference.posterior import Posterior
from metaroll.inference.priors import as_prior
from metaroll.lab.cli.main import main
from metaroll.own_code import add_code_folder, look_in, module_files
from metaroll.training.run.views import console_view
from metaroll.training.session import experiments
from metaroll.training.session.sessions import continue_run
from metaroll.training.store.ownership import is_own
from metaroll.training.store.run_folder import read_config
from metaroll.training.store.run_values import network_of
from metaroll.training.store.trust import check_run
from metaroll.training.store.yaml_files import write_yaml

MODULE = "canary_env"
CODE = """
import os
import gymnasium

with open(os.environ["CANARY"], "a") as file:
    file.write(__name__ + "\\n")


def make():
    return gymnasium.make("CartPole-v1")
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A folder of modules on the path, and the file in which they say that they were executed."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / f"{MODULE}.py").write_text(CODE)
    monkeypatch.setenv("CANARY", str(tmp_path / "executed"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    forget()


def forget():
    """As if no module had been imported yet."""
    for name in list(sys.modules):
        if name.partition(".")[0] in (MODULE, "got", "evil"):
            del sys.modules[name]
    importlib.invalidate_caches()


def executed(tmp_path):
    path = tmp_path / "executed"
    return path.read_text().split() if path.exists() else []


@pytest.fixture
def run(code, tmp_path):
    """A run that was made here; its module is forgotten again."""
    folder = tmp_path / "runs" / "own"
    agent = metaroll.agent(
        "hill-climbing", f"{MODULE}:make", run_dir=folder, epochs=1, hidden_sizes=(), max_path_length=5
    )
    agent.learn(progress=False)
    forget()
    (tmp_path / "executed").unlink()
    return folder


def change(folder, **values):
    config = read_yaml(folder / "config.yaml")
    config |= values
    write_yaml(folder / "config.yaml", {name: value for name, value in config.items() if value is not None})


@pytest.fixture
def foreign(run):
    """The same, as if somebody else had made it."""
    change(run, signature="0" * 32)
    return run


COMMANDS = (
    ["resume", "RUN", "--epochs", "2"],
    ["evaluate", "RUN", "--episodes", "1"],
    ["watch", "RUN", "--out", "RUN/a.gif"],
    ["robustness", "RUN", "--param", "length=0.4,0.5", "--episodes", "1"],
)


def typed(command, folder):
    return [part.replace("RUN", str(folder)) for part in command]


def test_a_run_that_was_made_here_needs_no_trust_wherever_its_folder_is_copied(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    assert metaroll.load(tmp_path / "copy").act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    assert executed(tmp_path) == [MODULE]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_execute_nothing_for_a_run_of_somebody_else(command, foreign, tmp_path, capsys):
    assert main(typed(command, foreign)) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert MODULE in told and str(tmp_path / "code" / f"{MODULE}.py") in told and "--trust" in told
    assert executed(tmp_path) == []


@pytest.mark.parametrize("command", COMMANDS[:2], ids=lambda command: command[0])
def test_with_trust_the_module_is_named_before_it_is_imported(command, foreign, tmp_path, capsys):
    assert main([*typed(command, foreign), "--trust", "--json"]) == 0
    assert str(tmp_path / "code" / f"{MODULE}.py") in " ".join(capsys.readouterr().err.split())
    assert executed(tmp_path) == [MODULE]


def test_a_run_that_was_trusted_and_went_on_here_is_our_own(foreign, tmp_path):
    assert main([*typed(COMMANDS[0], foreign), "--trust", "--quiet"]) == 0
    forget()
    metaroll.load(foreign)
    assert executed(tmp_path) == [MODULE, MODULE]


def test_load_says_what_it_would_import_and_takes_trust(foreign, tmp_path):
    with pytest.raises(UntrustedRunError, match=r"canary_env.*trust=True"):
        metaroll.load(foreign)
    assert executed(tmp_path) == []
    agent = metaroll.load(foreign, trust=True)
    agent.learn(epochs=1, progress=False)  # in a copy, without being asked again
    assert executed(tmp_path) == [MODULE]


def test_a_module_that_is_not_here_needs_its_folder_and_no_trust(foreign, code, capsys):
    (code / f"{MODULE}.py").unlink()
    for trust in ([], ["--trust"]):
        assert main([*typed(COMMANDS[0], foreign), *trust]) == 2
        err = " ".join(capsys.readouterr().err.split())
        assert f"'{MODULE}'" in err and "the folder of " in err and "trust" not in err and "inspect" not in err


def test_an_environment_that_is_given_needs_no_trust(foreign, tmp_path):
    agent = metaroll.load(foreign, f"{MODULE}:make")
    agent.learn(epochs=1, progress=False)
    assert executed(tmp_path) == [MODULE]


def test_an_environment_in_hand_is_not_one_that_the_user_has_given(foreign, tmp_path):
    config, env, quiet = read_config(foreign), EnvSource.of(f"{MODULE}:make"), console_view(quiet=True)
    with pytest.raises(UntrustedRunError):
        continue_run(config, foreign, quiet, env=env)
    assert executed(tmp_path) == []
    continue_run(config, foreign, quiet, env=env, env_given=True)


def test_a_cluster_that_somebody_else_names_is_not_connected_to(tmp_path, monkeypatch, code):
    folder = tmp_path / "runs" / "named"
    metaroll.agent("hill-climbing", "CartPole-v1", run_dir=folder, epochs=1, max_path_length=5).learn(progress=False)
    config = read_yaml(folder / "config.yaml")
    assert "signature" not in config
    change(folder, run={**config["run"], "transport": "ray", "ray_address": "203.0.113.1:6379"})
    with pytest.raises(UntrustedRunError, match=r"203\.0\.113\.1:6379"):
        metaroll.load(folder)
    with pytest.raises(UntrustedRunError, match=r"203\.0\.113\.1:6379"):
        metaroll.load(folder, "CartPole-v1")
    assert main(["evaluate", str(folder), "--engine", "serial", "--episodes", "1", "--quiet"]) == 0
    monkeypatch.setattr(experiments, "require_ray", lambda: None)
    kept = {name: value for name, value in config["run"].items() if name not in ("transport", "ray_address")}
    change(folder, run=kept, transport="ray", ray_address="203.0.113.1:6379")
    with pytest.raises(UntrustedRunError, match=r"203\.0\.113\.1:6379"):  # outside its section
        metaroll.load(folder)
    change(folder, transport=None, engine="ray")
    with pytest.raises(SnapshotError, match=r"203\.0\.113\.1:6379.*under a name"):  # by its name in another library
        metaroll.load(folder)


def test_another_key_or_another_file_of_the_module_is_not_ours(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(UntrustedRunError):
        metaroll.load(run)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    other = tmp_path / "other"
    other.mkdir()
    shutil.move(tmp_path / "code" / f"{MODULE}.py", other)
    monkeypatch.syspath_prepend(str(other))
    with pytest.raises(UntrustedRunError, match=r"other"):
        metaroll.load(run)
    assert executed(tmp_path) == []


def test_a_readable_key_of_others_signs_nothing(run, tmp_path):
    (tmp_path / "settings" / "metaroll" / "key").chmod(0o644)
    with pytest.raises(UntrustedRunError):
        metaroll.load(run)


@pytest.mark.parametrize("env", ["got.inner:make", "got.inner:Canary-v0"])
def test_what_lies_in_the_folder_is_never_executed_not_even_with_trust(env, run, tmp_path, monkeypatch, capsys):
    got = tmp_path / "got"
    shutil.copytree(run, got)
    (got / "inner.py").write_text(CODE)
    change(got, env=env)
    shutil.rmtree(got / "snapshots")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UntrustedRunError, match="lies in that folder"):
        check_run(config := read_yaml(got / "config.yaml"), config, got, trust=True)
    assert main(["evaluate", str(got), "--trust"]) == 2
    assert executed(tmp_path) == []


def test_in_the_folder_itself_its_modules_are_named_and_not_executed(run, tmp_path, monkeypatch, capsys):
    (run / "evil.py").write_text(CODE)
    shutil.rmtree(run / "snapshots")
    change(run, env="evil:make")
    monkeypatch.chdir(run)
    look_in(str(run))
    assert main(["evaluate", ".", "--trust"]) == 2
    assert "lies in that folder" in " ".join(capsys.readouterr().err.split())
    assert executed(tmp_path) == []


def test_a_configuration_of_another_environment_than_the_snapshot_is_refused_first(run, tmp_path):
    (tmp_path / "code" / "evil.py").write_text(CODE)
    change(run, env="evil:make")
    with pytest.raises(SnapshotError, match="env in"):
        metaroll.load(run, trust=True)
    assert executed(tmp_path) == []


@pytest.mark.parametrize("env", ["evil", "evil.py", "os:abort", "sys:exit"])
def test_names_that_lead_to_a_module_by_a_detour_execute_nothing(env, run, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    shutil.rmtree(run / "snapshots")
    change(run, env=env)
    assert main(["resume", str(run)]) == 2
    assert executed(tmp_path) == []


@pytest.mark.usefixtures("empty_charts")
@pytest.mark.parametrize(
    "command",
    [
        ["list", "runs", "--runs", "RUN/.."],
        ["compare", "RUN"],
        ["plot", "RUN", "--out", "RUN/p.png"],
        ["report", "RUN", "--no-pictures"],
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("own", [True, False])
def test_what_only_reads_imports_nothing(command, own, run, tmp_path):
    if not own:
        change(run, signature=None)
    assert main(typed(command, run)) == 0
    change(run, algo=f"{MODULE}:ROW")
    assert main(typed(command, run)) == 0
    assert main(["robustness", str(run), "--param", "length=0.4,0.5"]) == 2
    assert executed(tmp_path) == []
    assert MODULE not in sys.modules


@pytest.mark.usefixtures("empty_charts")
def test_a_report_with_pictures_of_a_foreign_run_is_written_without_them(foreign, tmp_path, capsys):
    assert main(["report", str(foreign)]) == 0
    assert "--trust" in (foreign / "report.html").read_text()
    assert executed(tmp_path) == []


def test_a_group_of_somebody_else_is_not_resumed_without_trust(code, tmp_path):
    folder = tmp_path / "group"
    options = ["--epochs", "1", "--max-steps", "5", "--seeds", "2", "--out", str(folder), "--quiet"]
    assert main(["train", "hill-climbing", f"{MODULE}:make", *options]) == 0
    forget()
    (tmp_path / "executed").unlink()
    for place in (folder / "group.yaml", *folder.glob("seed-*/config.yaml")):
        place.write_text(place.read_text().replace("signature: ", "signature: 0"))
    assert main(["resume", str(folder), "--epochs", "2"]) == 2
    assert executed(tmp_path) == []
    assert main(["resume", str(folder), "--epochs", "2", "--trust", "--quiet"]) == 0


def test_missing_runs_of_a_group_are_built_of_what_was_checked_and_of_what_is_there_now(code, tmp_path, capsys):
    """An option in two places was checked in one and built from the other; a changed module was not told."""
    net = "import torch\nNet = lambda spec: torch.nn.Linear(spec.obs_dim, 4)\n"
    (code / "got.py").write_text(net)
    folder = tmp_path / "group"
    options = ["--epochs", "1", "--max-steps", "5", "--steps-per-epoch", "5", "--seeds", "2", "--out", str(folder)]
    assert main(["train", "ppo", "CartPole-v1", "--policy", "got:Net", *options, "--quiet"]) == 0
    before, first = read_yaml(folder / "group.yaml"), read_yaml(folder / "seed-1" / "config.yaml")
    shutil.rmtree(folder / "seed-1")
    write_yaml(folder / "group.yaml", {**before, "other": {"policy": "got:Net"}})
    assert is_own(read_yaml(folder / "group.yaml")) and network_of({"other": {"policy": "evil:Net"}}) is None
    write_yaml(folder / "group.yaml", {**before, "policy": "got:Net"})
    assert main(["resume", str(folder), "--trust"]) == 2
    assert "option policy is given twice" in " ".join(capsys.readouterr().err.split())
    write_yaml(folder / "group.yaml", before)
    (code / "got.py").write_text(net + "# changed\n")
    with pytest.warns(RunWarning, match="file of got:Net has been changed since"):
        assert main(["resume", str(folder), "--quiet"]) == 0
    again = read_yaml(folder / "seed-1" / "config.yaml")
    hashes = [each.pop("own_network")["sha256"] for each in (first, again)]
    assert again == first and hashes[1] == hashlib.sha256((code / "got.py").read_bytes()).hexdigest() != hashes[0]


def test_a_posterior_of_somebody_else_imports_nothing(code, tmp_path):
    prior = as_prior({"length": (0.4, 0.6)})
    posterior = Posterior(prior, draws=prior.sample(20, 0), description={"simulator": {"env": "evil:make"}})
    posterior.save(tmp_path / "posterior")
    (tmp_path / "code" / "evil.py").write_text(CODE)
    with pytest.warns(UserWarning, match="of the simulator 'evil:make'"):
        metaroll.get_family(f"CartPole-v1@{tmp_path / 'posterior'}")
    assert executed(tmp_path) == []


def test_files_of_a_module_are_told_without_importing_it(code, monkeypatch):
    (code / "got" / "inner").mkdir(parents=True)
    (code / "got" / "inner" / "deep.py").write_text(CODE)
    (code / "evil").mkdir()
    (code / "evil" / "__init__.py").write_text(CODE)
    (code / "evil" / "part.py").write_text(CODE)
    assert module_files(MODULE) == [code / f"{MODULE}.py"]
    assert module_files("got.inner.deep")[-1] == code / "got" / "inner" / "deep.py"
    assert module_files("evil.part") == [code / "evil" / "__init__.py", code / "evil" / "part.py"]
    assert all(module_files(name) == [] for name in ("nowhere.at.all", "evil.nothing", "", "..", "/tmp/evil"))


def test_the_folder_of_the_user_joins_the_path_when_an_environment_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    look_in(str(tmp_path))
    assert str(tmp_path) not in sys.path
    add_code_folder()
    assert sys.path[-1] == str(tmp_path)


def test_a_command_in_a_foreign_folder_executes_no_file_there(run, tmp_path):
    """Libraries try to import packages that are not installed."""
    for name in ("IPython", "ipywidgets", "attr", "pydantic", "shtab", "omegaconf", "flax", "canary_tool"):
        (run / f"{name}.py").write_text(CODE.replace("def make", "def nothing"))
    script = Path(sys.executable).with_name("metaroll")
    done = subprocess.run(
        [script, "report", ".", "--no-pictures"], cwd=run, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert executed(tmp_path) == []
