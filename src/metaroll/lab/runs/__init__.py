"""What lies in the folders of runs, read for lists, reports and comparisons."""
