"""Formulas of replay memories: priorities, and goals chosen in hindsight."""
