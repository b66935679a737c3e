"""From rollouts to training batches: StepSequences in, arrays out."""
