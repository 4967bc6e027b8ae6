"""A network of real node processes on this machine, with a crowd whose true numbers the demo alone knows."""
