"""Lifecycle: what ends, outlives or removes what was remembered."""
