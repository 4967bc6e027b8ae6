"""`dpcrowd tune`: find parameters of the filters and of the sampling on public data."""
