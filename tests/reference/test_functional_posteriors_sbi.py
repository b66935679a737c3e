"""The local two-sample test beside l-C2ST of sbi: both find a posterior that is too narrow, and no exact one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from metaroll.functional.posteriors.calibration import local_two_sample_test
from metaroll.seeding import isolated_rng


@pytest.mark.parametrize("spread", [1.0, 0.3])
def test_verdicts_at_one_observation_equal_those_of_sbi(spread):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sbi.diagnostics.lc2st import LC2ST
    generator = np.random.default_rng(0)
    truths = generator.standard_normal((300, 1))
    x = truths + generator.standard_normal((300, 1))
    width = spread * np.sqrt(0.5)
    draws = 0.5 * x[:, None] + width * generator.standard_normal((300, 10, 1))
    observed = np.array([[0.4]])
    there = 0.2 + width * generator.standard_normal((500, 1))
    with isolated_rng(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays = [torch.tensor(array, dtype=torch.float32) for array in (truths, x, draws[:, 0])]
        settings = {"hidden_layer_sizes": (16,), "max_iter": 150, "learning_rate_init": 0.02, "solver": "adam"}
        reference = LC2ST(*arrays, seed=1, num_trials_null=10, classifier="mlp", classifier_kwargs=settings)
        reference.train_on_observed_data(verbosity=0)
        reference.train_under_null_hypothesis(verbosity=0)
        theirs = float(
            reference.p_value(torch.tensor(there, dtype=torch.float32), torch.tensor(observed, dtype=torch.float32))
        )
    ours = local_two_sample_test(
        (truths - 0.5 * x) / width, (draws - 0.5 * x[:, None]) / width, x, (there - 0.2) / width, observed[0], generator
    )
    assert (ours > 0.05) == (theirs > 0.05) == (spread == 1.0)
