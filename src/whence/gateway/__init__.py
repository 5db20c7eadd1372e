"""HTTP and OTLP: the edge that translates requests into verbs and their outcomes into answers."""
