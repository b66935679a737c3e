"""LocalRunner: drives a learner, saves, restores, evaluates."""
