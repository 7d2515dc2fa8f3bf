"""The figures that streamguard holds itself to: `python -m benchmarks`."""
