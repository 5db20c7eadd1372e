"""The context graph: what the ledger's events have to do with each other."""
