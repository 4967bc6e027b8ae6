"""Connections from outside: how many there may be, which one is ended if there are too many, and what is reported.

A connection needs a file descriptor, and a process has a limited number of them, which storage and timers need, too.
Both ports of a node, that of its neighbours and that of its API, therefore accept connections by the same rules.
"""
