"""``metaroll doctor``."""
