"""From recordings to a posterior, and what that predicts compared with them."""
