"""The HTTP API of a node: check-ins in, estimates out, and what an operator asks for."""
