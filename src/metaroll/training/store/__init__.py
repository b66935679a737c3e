"""What a run leaves on disk: files, snapshots, metrics, logs."""
