"""Sampling: in which slots a server reads its raw counts, decided from public facts and released values only."""
