"""What a response must look like, token by token."""
