"""Meta-learning by gradient steps: the learner, its samples, its outer updates, and how tasks are spread."""
