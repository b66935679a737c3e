"""Algorithms of others: by entry points, by ``module:attribute``, and given as objects."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import metaroll
from metaroll import own_code
from metaroll.envs.lookup import registry
from metaroll.errors import RunWarning, SpaceError, UnknownNameError, UntrustedRunError
from metaroll.lab.cli.doctor import plugins_check
from metaroll.lab.cli.main import main
from metaroll.own_code import PluginError
from metaroll.seeding import torch_generator
from metaroll.testing import check_search
from metaroll.training.algorithms import plugin_lookup
from metaroll.training.algorithms.registry import algorithm_names, get_algorithm
from metaroll.training.store.files import to_plain

pytestmark = pytest.mark.usefixtures("lent_pools")

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "plugins.md").read_text("utf-8")
FILES = dict(
    re.findall(
        r"```python\n(?=# (\w+)\.py\n)(.*?)```", PAGE + (DOCS / "evolution.md").read_text("utf-8"), flags=re.DOTALL
    )
)
"""Blocks of the pages that are files, by the name in their first line."""
PLUGIN = FILES["half"].replace("1000", "40") + "NOTHING = 3\n"
"""The first of them, which begins to learn sooner."""
SMALL = {"num_episodes": 1, "cycles_per_epoch": 2, "gradient_steps": 20, "batch_size": 16, "hidden_sizes": (16,)}
SMALL["max_steps"] = 50


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is on the path, with a file of an algorithm."""
    (tmp_path / "half_file.py").write_text(PLUGIN, "utf-8")
    for name, code in FILES.items():
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    monkeypatch.delitem(sys.modules, "half_file", raising=False)
    plugin_lookup._given.clear()
    yield tmp_path
    for name in ("half_file", "pole", *FILES):
        sys.modules.pop(name, None)
    if any(tmp_path.glob("*.dist-info")):
        look_anew()


def declare(
    folder: Path, name: str, target: str, distribution: str = "half-plugin", group: str = "metaroll.algorithms"
) -> None:
    """A distribution in ``folder`` that declares an algorithm, as an installer leaves it."""
    info = folder / f"{distribution.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n", "utf-8")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n", "utf-8")
    look_anew()


def look_anew() -> None:
    """Distributions are looked through again, which takes a while."""
    own_code.declared.cache_clear()
    own_code._sorted.cache_clear()


def test_the_page_has_all_names() -> None:
    assert {*metaroll.plugins.__all__} <= {*re.findall(r"\w+", PAGE)}


def test_files_of_the_pages_use_public_names_alone() -> None:
    assert {*FILES} == {"half", "reinforce", "all_or_nothing", "random_steps"}
    for code in FILES.values():
        modules = {node.module for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)}
        ours = {module for module in modules if module.startswith("metaroll")}
        assert ours <= {"metaroll", "metaroll.configs", "metaroll.plugins", "metaroll.policies"}


def test_the_whole_algorithm_of_the_page_is_one(folder: Path) -> None:
    (use,) = (each for each in PAGE.split("```")[1::2] if "import check_learner" in each)
    exec(compile(use.removeprefix("python\n"), "plugins.md", "exec"), {"__name__": "page"})
    small = {"steps_per_epoch": 40, "max_steps": 20, "hidden_sizes": (8,), "num_test_tasks": 2, "num_episodes": 1}
    for env, given in (("CartPole-v1", {"randomize_param": ("length=0.3:0.7",)}), ("point-robot", {})):
        agent = metaroll.agent("reinforce:REINFORCE", env, **small, **given).learn(epochs=1, progress=False)
        assert len(agent.evaluate().returns) == 2


def test_the_policy_of_the_page_is_one_and_learns(folder: Path) -> None:
    (use,) = (each for each in PAGE.split("```")[1::2] if "import check_policy" in each)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(use.removeprefix("python\n"), "plugins.md", "exec"), names)
    learned, policy = names["runner"].algo.policy, names["AllOrNothing"](names["spec"], generator=torch_generator(0))
    obs, noise = np.ones((9, 3), np.float32), np.linspace(0, 1, 9, dtype=np.float32)[:, None]
    assert {*learned.act(obs, {}, noise)[0].ravel()} == {-2.0, 2.0}
    for flags in (False, True, np.arange(9) % 2 == 0):
        on_torch = policy.act_on_torch(torch.from_numpy(obs), {}, torch.from_numpy(noise), flags)[0]
        np.testing.assert_array_equal(policy.act(obs, {}, noise, flags)[0], on_torch.numpy())
    views = policy.parameter_layout().torch_views(torch.from_numpy(policy.acting_parameters()))
    chosen, rows = policy.action_distribution(views, torch.from_numpy(obs)), torch.ones((9, 1))
    share = policy.act(obs, {}, noise)[2]["share"]
    np.testing.assert_allclose(chosen.log_prob(rows).exp(), share[:, 0], rtol=1e-5)
    expected = torch.distributions.Bernoulli(torch.from_numpy(share)).entropy()[:, 0]
    torch.testing.assert_close(chosen.entropy(), expected)
    torch.testing.assert_close(chosen.kl(chosen.map(lambda logits: logits)), torch.zeros(9))


def test_the_search_of_the_page_keeps_the_promises_of_one(folder: Path) -> None:
    from random_steps import RandomSteps  # type: ignore[import-not-found]

    check_search(RandomSteps)


def weights(agent: Any) -> np.ndarray:
    return torch.cat([p.detach().flatten() for p in agent.algo.policy.parameters()]).numpy()


def test_a_file_is_an_algorithm_with_everything_that_ours_have(folder: Path) -> None:
    agent = metaroll.agent("half_file:HALF", "Pendulum-v1", half=0.25, seed=3, **SMALL)
    assert agent.algo.config.half == 0.25 and type(agent.algo).__name__ == "Half"
    whole = weights(agent.learn(epochs=3, progress=False))
    config = metaroll.load(agent.run_dir).config
    assert config["algo"] == "half_file:HALF" and set(config["plugin"]) == {"sha256"}
    assert config["algorithm"]["warmup_steps"] == 40, "what the row has in common"

    other = metaroll.agent("half_file:HALF", "Pendulum-v1", half=0.75, seed=3, **SMALL)
    assert not np.array_equal(weights(other.learn(epochs=3, progress=False)), whole), "what the file does, counts"

    # A run that ended earlier continues to the same bits, in two workers, too.
    again = metaroll.agent("half_file:HALF", "Pendulum-v1", half=0.25, seed=3, num_workers=2, **SMALL)
    again.learn(epochs=1, progress=False)
    assert main(["resume", str(again.run_dir), "--epochs", "3", "--quiet"]) == 0
    assert np.array_equal(weights(metaroll.load(again.run_dir)), whole)
    assert main(["evaluate", str(again.run_dir), "--episodes", "1", "--quiet"]) == 0


def test_options_of_a_plugin_are_checked_as_ours(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"half must .*got 3"):
        metaroll.agent("half_file:HALF", "Pendulum-v1", half=3)
    with pytest.raises(UnknownNameError, match=r"'haf'.*half="):
        metaroll.agent("half_file:HALF", "Pendulum-v1", haf=0.3)
    assert metaroll.agent("half_file:HALF", "Pendulum-v1", gamma=0.9).algo.discount == 0.9
    assert main(["train", "half_file:HALF", "Pendulum-v1", "--half", "2"]) != 0
    assert re.search("--half must .*got 2", capsys.readouterr().err)
    assert main(["train", "half_file:HALF", "Pendulum-v1", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "How much of a reward counts. (default: 0.5)" in shown
    assert "usual values of half_file:HALF: " in shown and "preset of Pendulum-v1" not in shown
    assert "takes minutes" not in shown, "it has no sizes"
    assert main(["train", "half_file:HALF", "no-such-env", "--help"]) == 0
    assert "The defaults shown are those of half_file:HALF" in " ".join(capsys.readouterr().out.split())


def test_a_row_is_given_as_an_object(folder: Path) -> None:
    import half_file  # type: ignore[import-not-found]

    assert metaroll.agent(half_file.HALF, "Pendulum-v1").config["algo"] == "half_file:HALF"
    # One that no module holds, as those of a script, belongs to this process: it is asked for when a run is loaded.
    row = dataclasses.replace(half_file.HALF, name="own")
    agent = metaroll.agent(row, "Pendulum-v1", **SMALL).learn(epochs=1, progress=False)
    assert agent.config["algo"] == "given:own"
    plugin_lookup._given.clear()
    with pytest.raises(UnknownNameError, match=r"'given:own'.*algo=\.\.\."):
        metaroll.load(agent.run_dir)
    assert np.array_equal(weights(metaroll.load(agent.run_dir, algo=row)), weights(agent))
    with pytest.raises(ValueError, match=r"'given:own', .*'ppo'"):
        metaroll.load(agent.run_dir, algo="ppo")


def test_what_is_no_algorithm_is_refused_alike_everywhere(folder: Path) -> None:
    import half_file  # type: ignore[import-not-found]

    run = metaroll.agent("half_file:HALF", "Pendulum-v1", **SMALL).learn(epochs=1, progress=False).run_dir
    for given, hint in (
        (5, "5 of type int"),
        (half_file.Half, "the class Half: .*off_policy_row"),
    ):
        for use in (lambda given: metaroll.agent(given, "Pendulum-v1"), lambda given: metaroll.load(run, algo=given)):
            with pytest.raises(TypeError, match=f"algo must .*got {hint}"):
                use(given)


def test_a_search_is_known_by_the_module_that_defines_it(folder: Path) -> None:
    (folder / "half_file.py").write_text("from random_steps import RandomSteps\n", "utf-8")
    (folder / "rs.py").write_text("from random_steps import RandomSteps\nfrom half import HALF\n", "utf-8")
    import rs  # type: ignore[import-not-found]

    assert metaroll.agent(rs.RandomSteps, "CartPole-v1").config["algo"] == "random_steps:RandomSteps"
    assert metaroll.agent(rs.HALF, "Pendulum-v1").config["algo"] == "half:HALF"
    del sys.modules["rs"]


def scaled(factor: float, name: str = "mine") -> Any:
    """A row of a script, as another process has it, too."""
    code = PLUGIN.replace('"half",', f"{name!r},")
    names: dict[str, Any] = {"__name__": "__main__"}
    path = Path(f"script_{factor}.py")
    path.write_text(code.replace("self.config.half", str(factor)), "utf-8")
    exec(compile(path.read_text("utf-8"), path, "exec", dont_inherit=True), names)
    return names["HALF"]


def test_the_source_of_a_row_of_a_script_is_kept(folder: Path) -> None:
    (folder / "given.py").write_text("1 / 0\n", "utf-8")
    one = metaroll.agent(scaled(0.5), "Pendulum-v1", **SMALL).learn(epochs=1, progress=False)
    assert len(one.config["plugin"]["sha256"]) == 64
    with pytest.warns(RunWarning, match=r"given:mine .*source"):
        metaroll.load(one.run_dir, algo=scaled(0.25))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metaroll.load(one.run_dir, algo=scaled(0.5))


def test_two_rows_of_one_name_are_two_algorithms(folder: Path) -> None:
    rows = scaled(0.5, "two-words"), scaled(0.25, "two-words")
    agents = [metaroll.agent(row, "Pendulum-v1", **SMALL) for row in (*rows, rows[0])]
    assert [each.config["algo"] for each in agents] == ["given:two-words", "given:two-words_2", "given:two-words"]
    kinds = [type(each.algo) for each in agents]
    for each, kind in zip(agents[:2], kinds, strict=False):
        assert type(each.learn(epochs=1, progress=False).algo) is kind

    # Both began under the same name, in processes of their own: each continues with its own row.
    plugin_lookup._given.clear()
    other = metaroll.agent(rows[1], "Pendulum-v1", **SMALL).learn(epochs=1, progress=False)
    loaded = [metaroll.load(agents[0].run_dir, algo=rows[0]), metaroll.load(other.run_dir, algo=rows[1])]
    assert {each.config["algo"] for each in loaded} == {"given:two-words"}
    for each, kind in zip(loaded, kinds, strict=False):
        assert type(each.learn(epochs=1, progress=False).algo) is kind


def test_a_run_of_a_script_continues_with_a_row_of_a_module(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import half_file  # type: ignore[import-not-found]

    agent = metaroll.agent(scaled(0.5), "Pendulum-v1", **SMALL).learn(epochs=1, progress=False)
    for given in (half_file.HALF, "half_file:HALF"):
        with pytest.warns(RunWarning, match="given:mine "):
            loaded = metaroll.load(agent.run_dir, algo=given)
        assert loaded.config["algo"] == "given:mine" and type(loaded.algo) is half_file.Half

    class Stops:
        def on_epoch_end(self, runner: Any, epoch: int, metrics: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        agent.learn(epochs=1, callbacks=[Stops()])
    assert re.search(r"metaroll\.load\('\S+', algo=\.\.\.\)", " ".join(capsys.readouterr().out.split()))


def test_what_get_algorithm_returns_is_known_by_its_name(folder: Path) -> None:
    for name in ("half:HALF", "es", "sac"):
        assert metaroll.agent(get_algorithm(name), "Pendulum-v1").config["algo"] == name


def test_classes_of_a_script_work_in_workers(folder: Path) -> None:
    agent = metaroll.agent(scaled(0.5, "half"), "Pendulum-v1", num_workers=2, **SMALL)
    assert agent.config["algo"] == "given:half" and len(agent.learn(epochs=1, progress=False).train_tasks) == 0


def test_entry_points_are_listed_without_an_import(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declare(folder, "half", "half_file:HALF")
    assert algorithm_names()[-1] == "half"
    assert main(["list", "algos", "--json"]) == 0
    last = json.loads(capsys.readouterr().out)["algos"][-1]
    assert last["name"] == "half" and last["summary"].endswith("half_file:HALF of half-plugin 1.2")
    assert "half_file" not in sys.modules

    agent = metaroll.agent("half", "Pendulum-v1")
    assert agent.config["algo"] == "half"
    kept = agent.config["plugin"]
    assert (kept["distribution"], kept["version"], kept["object"]) == ("half-plugin", "1.2", "half_file:HALF")
    assert metaroll.agent(sys.modules["half_file"].HALF, "Pendulum-v1").config["algo"] == "half"
    with pytest.raises(UnknownNameError, match=r"'hal'.*'half'"):
        metaroll.agent("hal", "Pendulum-v1")
    with pytest.raises(UnknownNameError, match=r"'half_file'.*half_file:NAME"):
        metaroll.agent("half_file", "Pendulum-v1")


def bad(changes: str) -> str:
    """Code of a row ``BAD``."""
    return f"BAD = dataclasses.replace(HALF, {changes})"


@pytest.mark.parametrize(
    ("name", "target", "text", "match"),
    [
        ("half", "half_file:NOTHING", "", "got int"),
        ("half", "half_file:LACKS", "", "'LACKS'"),
        ("half", "no_such:HALF", "", "'no_such'"),
        ("other", "half_file:HALF", "", "'other', .*got name='half'"),
        ("half", "half_file:HALF", "raise RuntimeError('broken')", "RuntimeError: broken"),
        ("half", "half_file:HALF", "raise SystemExit(3)", "SystemExit: 3"),
        ("half", "half_file", "", "'half_file': .*half_file:NAME"),
        ("half", "half_file:BAD", bad("api=7"), "got api=7"),
        ("half", "half_file:BAD", bad("api=None"), "got api=None: .*api=1"),
        ("half", "half_file:BAD", bad("configs=(3,)"), "configs must .*got 3"),
        ("half", "half_file:BAD", bad("configs=(HalfConfig,)"), "num_test_tasks .*randomize"),
        ("half", "half_file:BAD", bad("filled=('n_step', 'no')"), "filled must .*got no$"),
        ("half", "half_file:BAD", bad("filled='half'"), "filled must .*got 'half'"),
        ("half", "half_file:BAD", bad("common={'no': 3}"), "common.*'no'"),
        ("half", "half_file:BAD", bad("common={'half': 3}"), "half in common must .*got 3"),
        ("half", "half_file:BAD", bad("work=3"), "work must .*got 3"),
        ("half", "half_file:Half", "", "got the class Half: .*off_policy_row"),
        ("half", "half_file:BAD", bad("build=lambda *given: 1 / 0"), r"build .*ZeroDivisionError.*_file\.py, line \d+"),
        ("half", "half_file:BAD", bad("build=lambda *given: 3"), "build must .*got 3"),
        ("half", "half_file:BAD", bad("follows_epochs=('no',)"), "follows_epochs must .*got no$"),
        ("half", "half_file:BAD", bad("follows_epochs='half'"), "follows_epochs must .*got 'half'"),
        ("half", "half_file:BAD", bad("adapts=True"), "learner must .*adapts=True, got the class Half"),
        (
            "half",
            "half_file:Lacks",
            "from metaroll.plugins import Search\nclass Lacks(Search):\n    def spread(self, state): return 1.0",
            "Lacks .*ask, learned, num_candidates, start",
        ),
    ],
)
def test_errors_of_a_plugin_name_it_and_hinder_nothing_else(
    folder: Path, name: str, target: str, text: str, match: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "half_file.py").write_text(f"{PLUGIN}\nimport dataclasses\n{text}\n", "utf-8")
    declare(folder, name, target)
    file = "" if target.startswith("no_such") else r"in \S*half_file\.py\b.*"
    with pytest.raises(PluginError, match=rf"'{name}' \({target} of half-plugin 1\.2\).*{file}{match}"):
        metaroll.agent(name, "Pendulum-v1")
    assert main(["list", "algos"]) == 0 and f"{name} " in capsys.readouterr().out
    checked = plugins_check()
    if "build=" not in text:  # nothing is built for the check
        assert checked.status == "warn" and target in checked.value
    assert metaroll.agent("ppo", "CartPole-v1").config["algo"] == "ppo"


@pytest.mark.parametrize("field", ["epochs", "num_episodes", "device", "budget", "tasks"])
def test_a_field_cannot_have_a_name_that_every_run_has(folder: Path, field: str) -> None:
    changed = PLUGIN.replace("half: Annotated", f"{field}: Annotated").replace("self.config.half", "0.5")
    (folder / "half_file.py").write_text(changed, "utf-8")
    with pytest.raises(PluginError, match=rf"half_file\.py: .*{field} of HalfConfig"):
        metaroll.agent("half_file:HALF", "Pendulum-v1")


WRONG: list[tuple[str, str, str]] = [
    ("sizes", "lambda env: None", "got None"),
    ("sizes", "lambda env: {'num_test_tasks': 'many'}", "num_test_tasks .*got 'many'"),
    ("sizes", "lambda env: {'haf': 0.3}", "'haf'.*'half'"),
    ("settled", "lambda values, given: 3", "got 3"),
    ("settled", "lambda values, given: {1: 3}", "got dict"),
    ("settled", "lambda values, given: {'max_steps': -3}", "max_steps .*got -3"),
    ("settled", "lambda values, given: {'haf': 0.3}", "'haf'.*'half'"),
    ("tasks", "lambda given, number: None", "got None"),
    ("tasks", "lambda given, number: (None, [1, 2])", "got 1"),
    ("environment", "lambda given, train: None", "got None"),
    ("environment", "lambda given, train: 'abc'", "'abc'"),
    ("largest_batch", "lambda values: 'all'", "got 'all'"),
    ("largest_batch", "lambda values: -1", "got -1"),
    ("largest_batch", "lambda values: True", "got True"),
    ("notes", "lambda given, epochs: 'long'", "got 'long'"),
    ("summary_values", "lambda returns, values: 5", "got 5"),
    ("summary_values", "lambda returns, values: {1: 2.0}", "got dict"),
    ("summary_values", "lambda returns, values: {'x': object()}", "got <object"),
    ("ended_early", "lambda learner: 3", "got 3"),
    ("ended_early", "lambda learner: ('x', 'why')", "got tuple"),
    ("ended_early", "lambda learner: (-1, 'why')", "got tuple"),
    ("work", "lambda values: Work(0, 0, 0)", "ValueError: epoch_steps must .*got 0"),
    ("work", "lambda values: Work(3, 4, 5, initial='{nope} {}')", "ValueError: initial must .*got '{nope} {}'"),
    ("work", "lambda values: Work(3, 4, 5, initial='{.a}')", "ValueError: initial must .*got '{.a}'"),
    ("amount", "lambda learner, values: Work('many', 1, 1)", "TypeError: initial_steps must .*got 'many'"),
    ("build", "lambda *given: numpy.ones(3) + numpy.ones(2)", "ValueError: operands"),
    ("build", "lambda *given: exit(0)", "SystemExit: 0"),
]
"""Function of a row, a wrong one, and what its error contains."""


@pytest.mark.parametrize(("name", "code", "match"), WRONG)
def test_wrong_results_of_functions_of_a_row_are_refused(folder: Path, name: str, code: str, match: str) -> None:
    imports = "import dataclasses, numpy\nfrom metaroll.plugins import Work"
    (folder / "half_file.py").write_text(f"{PLUGIN}\n{imports}\n{bad(f'{name}={code}')}\n", "utf-8")
    row = get_algorithm("half_file:BAD")
    with pytest.raises(PluginError, match=rf"half_file\.py: its {name} .*{match}"):
        if name == "summary_values":
            row.summary_values(returns=np.zeros((1, 1)), values={})  # with keywords, as they are called here, too
        metaroll.agent("half_file:BAD", "Pendulum-v1", **SMALL).learn(epochs=1, progress=False)
    assert Path("runs").exists() == (name == "ended_early"), "without a run there is no folder"


def test_functions_of_a_row_may_hand_on_what_they_were_given(folder: Path) -> None:
    code = """
import dataclasses
from metaroll.plugins import family_sizes
ALL = dataclasses.replace(
    HALF,
    settled=lambda values, given: {**values, "half": 0.25},
    sizes=lambda env: {**(family_sizes(env) if env.is_varied else {}), "gradient_steps": 3, "max_steps": None},
    environment=lambda given, train: train[0] if train else given.env.name,
)
"""
    (folder / "half_file.py").write_text(PLUGIN + code, "utf-8")
    for env in ("Pendulum-v1", "point-robot"):
        assert metaroll.agent("half_file:ALL", env, max_steps=30).config["algorithm"]["half"] == 0.25


def test_spaces_that_a_plugin_is_not_for_are_not_its_mistake(folder: Path) -> None:
    with pytest.raises(SpaceError, match=r"^Half .*Box"):
        metaroll.agent("half:HALF", "CartPole-v1")


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        ("RuntimeError('the memory of my encoder lacks a row')", PluginError, "build .*RuntimeError: the memory of my"),
        ("ValueError('half must be below 1')", ValueError, "^half must be below 1$"),
        ("MemoryError()", ValueError, "networks .*memory.*hidden_sizes"),
        ("torch.OutOfMemoryError('CUDA out of memory')", ValueError, "networks .*memory.*hidden_sizes"),
    ],
)
def test_errors_of_build_are_of_the_plugin_or_of_the_options(
    folder: Path, raised: str, kind: type[Exception], text: str
) -> None:
    code = f"import dataclasses, torch\n\ndef build(*given):\n    raise {raised}\n\n"
    (folder / "half_file.py").write_text(f"{PLUGIN}\n{code}{bad('build=build')}\n", "utf-8")
    with pytest.raises(kind, match=text) as caught:
        metaroll.agent("half_file:BAD", "Pendulum-v1", **SMALL)
    assert caught.type is kind


def test_an_error_of_an_environment_is_not_one_of_the_algorithm(folder: Path) -> None:
    made: list[Any] = []

    def breaks() -> Any:
        made.append(np.ones(3) + np.ones(2) if made else gymnasium.make("Pendulum-v1"))
        return made[-1]

    with pytest.raises(ValueError, match=r"^operands could not be broadcast"):
        metaroll.agent("half:HALF", breaks)


SEARCH = (
    FILES["random_steps"]
    + """

def make_env():
    import gymnasium

    return gymnasium.make("CartPole-v1", max_episode_steps=20)
"""
)


def test_a_search_is_an_algorithm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "half_file.py").write_text(SEARCH, "utf-8")
    declare(folder, "random-steps", "half_file:RandomSteps", group="metaroll.searches")
    agent = metaroll.agent("random-steps", "CartPole-v1", walkers=5, max_steps=10, num_episodes=1)
    assert agent.learn(epochs=2, progress=False).algo.num_candidates == 5
    assert metaroll.load(agent.run_dir).algo.num_epochs == 2
    with pytest.raises(ValueError, match=r"reach must .*got -1"):
        metaroll.agent("random-steps", "CartPole-v1", reach=-1)
    kind = sys.modules["half_file"].RandomSteps
    assert metaroll.agent(kind, "CartPole-v1").config["algo"] == "random-steps"
    assert main(["list", "algos"]) == 0 and "half_file:RandomSteps" in capsys.readouterr().out


def test_an_environment_is_named_by_a_distribution(folder: Path) -> None:
    """Perhaps as its module, whose name leads to the file of anybody where it is no environment."""
    (folder / "pole.py").write_text(SEARCH, "utf-8")
    declare(folder, "pole", "pole:make_env", group="metaroll.environments")
    for algo in ("cmaes", "pearl"):
        with pytest.raises(UnknownNameError, match=r"'poel'.*'pole'"):
            metaroll.agent(algo, "poel")
    assert "pole" not in sys.modules
    agent = metaroll.agent("cmaes", "pole", num_episodes=1).learn(epochs=1, progress=False)
    assert agent.config["env"] == "pole" and agent.algo.max_path_length == 20
    assert metaroll.load(agent.run_dir).config["env"] == "pole"
    assert agent.config["env_plugin"].items() >= {"object": "pole:make_env", "version": "1.2"}.items()
    (folder / "pole.py").write_text(f"{SEARCH}\n# changed\n", "utf-8")
    with pytest.warns(RunWarning, match="file of pole "):
        metaroll.load(agent.run_dir)


def test_errors_of_an_environment_of_a_distribution_name_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "half_file.py").write_text("make = 3\n", "utf-8")
    declare(folder, "bad-env", "half_file:make", group="metaroll.environments")
    declare(folder, "point-robot", "half_file:make", "b-second", group="metaroll.environments")
    assert main(["list"]) == 0 and "bad-env" in capsys.readouterr().out
    assert main(["list", "envs", "--json"]) == 0
    listed = [entry["summary"] for entry in json.loads(capsys.readouterr().out)["envs"]][-2:]
    assert listed[0].endswith("half_file:make of half-plugin 1.2") and "'point-robot'" in listed[1]
    assert "half_file" not in sys.modules
    with pytest.raises(PluginError, match=r"'bad-env' \(half_file:make of half-plugin 1\.2\) in .*half_file\.py must"):
        metaroll.agent("cmaes", "bad-env")
    first, second = plugins_check().value.split("\n")
    assert re.match(r"'point-robot' \(half_file:make of b-second 1\.2\) in \S*half_file\.py ", first)
    assert second.startswith("environment 'bad-env' (half_file:make of half-plugin 1.2)") and not second.endswith("...")


def test_an_environment_of_a_distribution_keeps_its_name_when_it_registers_an_id(folder: Path) -> None:
    code = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv
gymnasium.register("swing", entry_point=PendulumEnv, max_episode_steps=50)
def make(): return gymnasium.make("swing", max_episode_steps=7)
def fails(): raise SystemExit
"""
    (folder / "half_file.py").write_text(code, "utf-8")
    declare(folder, "swing", "half_file:make", group="metaroll.environments")
    declare(folder, "exits", "half_file:fails", "b-second", group="metaroll.environments")
    for _ in range(2):
        assert metaroll.agent("ppo", "swing").algo.max_path_length == 7
        assert "swing" in registry.installed()
    del gymnasium.registry["swing"]
    assert re.search(r"exits \(half_file:fails of b-second 1\.2\) in \S*half_file\.py", plugins_check().value)


@pytest.mark.parametrize("raised", ["RuntimeError('broken')", "SystemExit(3)", "AttributeError('no', name='x', obj=3)"])
@pytest.mark.parametrize("group", ["metaroll.algorithms", "metaroll.searches", "metaroll.environments"])
def test_errors_of_a_module_that_makes_names_on_access_are_its_own(folder: Path, group: str, raised: str) -> None:
    (folder / "half_file.py").write_text(f"def __getattr__(name):\n    raise {raised}\n", "utf-8")
    declare(folder, "lazy", "half_file:LAZY", group=group)
    declare(folder, "half", "half:HALF", "other")
    complaint = r"'lazy' \(half_file:LAZY of half-plugin 1\.2\) in \S*half_file\.py .*" + raised.partition("(")[0]
    with pytest.raises(PluginError, match=complaint):
        metaroll.agent("cmaes", "lazy") if "env" in group else metaroll.agent("lazy", "Pendulum-v1")
    (problem,) = plugins_check().value.split("\n")
    assert re.search(complaint, problem)


@pytest.mark.parametrize("name", ["epopt", "pgpe", "tqc"])
def test_what_metaroll_declares_itself_is_a_plugin_without_an_entry_in_runs(folder: Path, name: str) -> None:
    declare(folder, name, "half_file:HALF")
    ((refused, why),) = plugin_lookup.refused()
    assert name not in plugin_lookup.installed() and refused == name and re.search(r"half_file\.py .*: metaroll ", why)
    given = own_code.attribute_of(own_code.contributed()[name], "algorithm")
    agent = metaroll.agent(given, "pend")
    assert agent.config["algo"] == name and "plugin" not in agent.config, "as in runs of older versions"
    assert "half_file" not in sys.modules


def test_entry_points_of_metaroll_itself_are_no_plugins_of_others(folder: Path) -> None:
    declare(folder, "tqc", "metaroll.contrib.tqc:ROW", "metaroll")
    assert "tqc" not in plugin_lookup.installed() and plugin_lookup.refused() == []


def test_names_of_ours_and_names_twice_are_not_taken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declare(folder, "sac", "half_file:HALF")
    declare(folder, "half", "half_file:HALF", "a-first")
    declare(folder, "half", "half_file:HALF", "b-second")
    assert [one.distribution for one in plugin_lookup.installed().values()] == ["a-first"]
    assert main(["list", "algos"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    why = dict(plugin_lookup.refused())["sac"]
    assert re.match(r"'sac' \(half_file:HALF of half-plugin 1\.2\) in \S*half_file\.py .*: metaroll ", why)
    assert main(["list", "algos", "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)["algos"]][-2:] == ["half", "sac"]
    assert "'half' (half_file:HALF of b-second 1.2) in" in shown
    assert type(metaroll.agent("sac", "Pendulum-v1").algo) is metaroll.SAC


def test_a_search_that_has_the_name_of_an_algorithm_is_refused(folder: Path) -> None:
    declare(folder, "half", "half_file:HALF", "a-first")
    declare(folder, "half", "random_steps:RandomSteps", "b-second", group="metaroll.searches")
    assert plugin_lookup.installed()["half"].distribution == "a-first"
    ((_, why),) = plugin_lookup.refused()
    assert re.search(r"random_steps\.py .*: half_file:HALF of a-first 1\.2 ", why)


def test_a_row_cannot_take_a_name_of_ours(folder: Path) -> None:
    (folder / "half_file.py").write_text(PLUGIN.replace('"half",', '"sac",'), "utf-8")
    with pytest.raises(PluginError, match=r"'half_file:HALF' in .*half_file\.py: name must .*got 'sac'"):
        metaroll.agent("half_file:HALF", "Pendulum-v1")
    given = own_code.attribute_of("half_file:HALF", "algorithm")

    with pytest.raises(PluginError, match=r"'half_file:HALF' in .*half_file\.py: name must .*got 'sac'"):
        metaroll.agent(given, "Pendulum-v1")
    assert metaroll.agent(get_algorithm("sac"), "Pendulum-v1").config["algo"] == "sac", "the row of ours"


def test_a_run_of_somebody_else_imports_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = metaroll.agent("half_file:HALF", "Pendulum-v1", **SMALL).learn(epochs=1, progress=False)
    run = str(agent.run_dir)
    (folder / "keys" / "metaroll" / "key").unlink()
    del sys.modules["half_file"]
    with pytest.raises(UntrustedRunError, match=r"'half_file:HALF' .*module 'half_file'"):
        metaroll.load(run)
    with pytest.raises(UntrustedRunError, match=r"'half_file:HALF' .*module 'half_file'"):
        metaroll.load(run, "Pendulum-v1")
    assert main(["resume", run]) != 0 and main(["evaluate", run]) != 0
    assert "half_file" not in sys.modules
    assert to_plain(metaroll.load(run, trust=True).config)["algo"] == "half_file:HALF"


def test_a_module_inside_the_run_is_never_executed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = metaroll.agent("half_file:HALF", "Pendulum-v1", **SMALL).learn(epochs=1, progress=False).run_dir
    (folder / "half_file.py").rename(run / "half_file.py")
    monkeypatch.syspath_prepend(run)
    del sys.modules["half_file"]
    with pytest.raises(UntrustedRunError, match=r"module 'half_file' .*that folder"):
        metaroll.load(run, trust=True)
    assert "half_file" not in sys.modules


def test_a_file_that_has_been_changed_is_warned_of(folder: Path) -> None:
    agent = metaroll.agent("half_file:HALF", "Pendulum-v1", **SMALL).learn(epochs=1, progress=False)
    (folder / "half_file.py").write_text(f"{PLUGIN}\n# changed\n", "utf-8")
    with pytest.warns(RunWarning, match="file of half_file:HALF "):
        metaroll.load(agent.run_dir)
