"""The doors to files: one for each format, with a budget, for plain files only, and with one error for all damage."""
