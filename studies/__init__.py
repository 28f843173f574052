"""What rules lose and gain, on simulated pools and on recorded ones."""
