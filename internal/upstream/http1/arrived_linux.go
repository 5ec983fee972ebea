package http1

import "golang.org/x/sys/unix"

// arrived returns how many bytes can be read from a socket. To peek at them instead would
// have the kernel tell the server about its window each time.
func arrived(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCINQ) }
