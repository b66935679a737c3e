"""Time series: features, noise, and distances."""
