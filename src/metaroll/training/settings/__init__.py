"""What can be set of a run: configs of algorithms, evaluations and the run itself, without torch."""
