"""Schemes: compositions of privacy, filters, sampling, grouping and network."""
