"""What environments are built on."""
