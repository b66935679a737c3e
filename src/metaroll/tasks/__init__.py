"""What may change in an environment, and samplers of such changes."""
