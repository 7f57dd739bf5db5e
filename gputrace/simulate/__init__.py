"""Plays requests against GPUs that are not there, through the real SDK, in virtual time."""
