"""Files of a run: snapshots, metrics, logs."""
