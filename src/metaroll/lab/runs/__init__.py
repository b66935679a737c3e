"""The content of run folders, read for lists, reports and comparisons."""
