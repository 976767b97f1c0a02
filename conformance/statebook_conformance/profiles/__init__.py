"""Frozen profiles, one JSON file each: the exact rule set that a release was certified with."""
