"""Token signals and log-probabilities, from the raw logits."""
