"""What hpcsampler costs, as ratios measured in one run: `python -m bench` (or `make bench`)."""
