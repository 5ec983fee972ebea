//go:build !linux

package localuser

import (
	"errors"
	"net"
)

// peerUID returns an error: this system is not supported.
func peerUID(*net.UnixConn) (int, error) { return 0, errors.ErrUnsupported }
