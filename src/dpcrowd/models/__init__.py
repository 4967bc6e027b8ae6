"""Process models: what is publicly known about a crowd before any record of it, fitted on public data and kept in files."""
