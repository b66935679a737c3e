"""One rollout: run, replay, film, look at; one-slot and vector views."""
