"""Changes of environments, and samplers of them."""
