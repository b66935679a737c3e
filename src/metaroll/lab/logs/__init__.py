"""Logs of robots as rollouts: tables, data sets of Minari, and logs of real environments."""
