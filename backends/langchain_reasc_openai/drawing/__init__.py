"""Several samples of one prompt, as streams that can be cut off."""
