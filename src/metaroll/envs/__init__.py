"""Environments, one by one or many at once behind the Slots protocol."""
