"""`dpcrowd tune`: parameters of the filters and of the sampling from public or past data."""
