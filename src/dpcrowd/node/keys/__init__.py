"""Keys, requests and certificates: who a server is, who may say so, and how its messages are signed."""
