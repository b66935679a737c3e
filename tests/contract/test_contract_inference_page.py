"""The code of docs/inference.md runs as it is, except that it makes fewer simulations."""

from __future__ import annotations

from pathlib import Path

from doc_pages import page, python_blocks, run_script


def test_the_code_runs(tmp_path: Path) -> None:
    blocks = python_blocks(page("inference.md"))
    assert len(blocks) == 6
    code = "\n".join(blocks).replace("observed, 3000)", "observed, 300)")
    code = code.replace("learning_rate=2e-3", "learning_rate=1e-2, max_epochs=20, num_transforms=2, hidden_features=16")
    code += "\nagent = metaroll.agent('ppo', 'pend', batch_size=400)\nagent.learn(400)\nagent.save('tiny')\n"
    shown = run_script(tmp_path, code + "print('on the robot', np.isfinite(on_the_robot('tiny')))\n")
    assert "on the robot True" in shown
    assert len(list((tmp_path / "swings").iterdir())) == 5
    assert "Posterior: length = 0." in shown and "10000 draws of length, friction" in shown
    assert "22 features of a rollout, 44 of the log" in shown and "Posterior: pole_mass = " in shown
    assert "calibration at the observed" in shown and "do not give the observed features" in shown
    assert {path.name for path in (tmp_path / "runs/pendulum/posterior").iterdir()} == {
        "draws.npz",
        "weights.safetensors",
        "posterior.json",
    }
