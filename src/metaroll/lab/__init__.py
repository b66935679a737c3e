"""What people look at: the command line, displays, figures, reports, logs, real devices."""
