"""Time series: what is computed of them, and how far apart they are."""
