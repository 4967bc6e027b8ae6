"""`dpcrowd tune`: find parameters of the filters and of the sampling on published data or earlier releases."""
