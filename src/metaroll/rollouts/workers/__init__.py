"""Worker processes and Ray actors: pool, schedule, transports, messages."""
