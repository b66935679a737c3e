"""Pure maths on arrays: arrays in, arrays out, no state."""
