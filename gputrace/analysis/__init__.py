"""Answers from the files that gputrace wrote. Reads files, never the running SDK."""
