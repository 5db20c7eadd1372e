"""Models: what turns text into vectors."""
