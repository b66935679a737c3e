"""Objectives of policy gradients, and gradients through gradient steps (torch)."""
