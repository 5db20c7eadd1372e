"""What ends memory, outlives it or removes it."""
