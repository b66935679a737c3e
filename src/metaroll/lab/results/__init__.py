"""What commands measure beside evaluations: maps, groups, what an inference found."""
