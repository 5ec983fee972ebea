package http1

import "golang.org/x/sys/unix"

// arrived returns how many bytes can be read from a socket. To look at the bytes
// themselves would cost more: the system sends a packet to the server each time.
func arrived(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCINQ) }
