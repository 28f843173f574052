"""Chat models: what they are asked and what they say. ``contract`` is what our own backends and the core agree on."""
