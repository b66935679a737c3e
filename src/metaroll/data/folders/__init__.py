"""The one way to write into folders: taken, locked, cleared by name; files are whole or not there; no links."""
