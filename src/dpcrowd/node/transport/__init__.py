"""How servers reach their one-hop neighbours: one small interface, in one process or over Zenoh with mutual TLS."""
