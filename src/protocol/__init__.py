"""What the sampler, the collector and the viewer agree on. Pure data and functions: no I/O."""
