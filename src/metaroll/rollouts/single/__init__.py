"""One rollout: run, replay, film, inspect; one-slot and vector views."""
