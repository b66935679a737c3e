"""From options to an experiment: algorithm, environment, tasks, networks."""
