"""The one way to write into folders: taken, locked, cleared by name; files whole or not there; nothing through links."""
