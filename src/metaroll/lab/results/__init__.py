"""Results of commands other than evaluations: robustness maps, comparisons, inferences."""
