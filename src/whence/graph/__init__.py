"""The context graph: what the ledger's events say about each other. Derived, and rebuilt from the ledger alone."""
