"""What drives a learner: runner, snapshots, evaluation, logs and plots."""
