"""Posteriors on disk: a folder each, read without the package that made them."""
