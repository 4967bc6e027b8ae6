"""A live server: clock, storage and sockets around the slot-by-slot interface; no arithmetic of its own."""
