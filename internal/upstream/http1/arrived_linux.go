package http1

import "golang.org/x/sys/unix"

// bytesAvailable returns how many bytes can be read from a socket. Peeking at the bytes would be
// slower: it makes the system send a packet to the server each time.
func bytesAvailable(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCINQ) }
