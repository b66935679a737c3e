"""Algorithms and searches on the public interface alone, one file each: plug-ins that come with metaroll."""
