"""The algorithms that are known by name, one description each; `registry` lists them."""
