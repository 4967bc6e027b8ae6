"""The shell: clock, storage, sockets and HTTP around the state machine. It carries out, and decides nothing."""
