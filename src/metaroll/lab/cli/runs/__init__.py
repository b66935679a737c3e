"""Runs, groups of runs, and their folders."""
