"""Logs of robots as rollouts: tables, data sets of Minari, and what a real environment writes while it acts."""
