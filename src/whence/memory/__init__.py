"""What agents remember."""
