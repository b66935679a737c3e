"""Tasks of a point in the plane."""
