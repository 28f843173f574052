"""What servers support: known of their kind, or found out by asking."""
