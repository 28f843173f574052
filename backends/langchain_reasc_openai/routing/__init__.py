"""Which server answers a request, and what happens when it does not."""
