"""The names of each seed document, grouped as that document groups them."""
