"""Groups of runs that differ in their seeds, compared."""
