"""Connections from outside: how many there may be, who leaves when there are too many, and what is told of it.

A connection costs a file descriptor, and a process has a limited number of them, which storage and timers need, too.
Both ports of a node, that of its neighbours and that of its API, therefore accept connections by the same rules.
"""
