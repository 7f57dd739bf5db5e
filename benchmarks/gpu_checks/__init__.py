"""The parts of ``gpu_check.py``: what gputrace charges on a real GPU, held against other instruments."""
