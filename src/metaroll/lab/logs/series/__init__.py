"""Formulas on the signals of a log: times of rows, holds, delays, lags."""
