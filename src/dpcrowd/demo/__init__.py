"""A network of real node processes on this machine, with a crowd whose true counts only the demo knows."""
