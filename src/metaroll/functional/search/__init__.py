"""Search without gradients, as pure functions: distributions over parameter vectors that are asked and told."""
