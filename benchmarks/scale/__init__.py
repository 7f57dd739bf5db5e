"""What benchmarks/scale_boards.py is made of."""
