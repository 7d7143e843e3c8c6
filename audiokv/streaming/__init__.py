"""The pure core: numpy and the standard library, no torch, no sockets, no clock, no await."""
