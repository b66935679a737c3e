"""From recordings to a posterior, and its predictions compared with them."""
