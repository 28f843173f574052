"""Code that the backends share and the core does not need."""
