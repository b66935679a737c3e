"""Formulas for the signals of a log: times of rows, held signals, delays, lags."""
