"""What the HTTP servers and clients of all processes share."""
