"""Everything around a learner: runner, snapshots, evaluation, logs and plots."""
