"""Workers and local sampler as garage documents them."""
