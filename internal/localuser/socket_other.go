//go:build !linux

package localuser

import (
	"errors"
	"net/netip"
)

// findSocket returns an error: this system is not supported.
func findSocket(_, _ netip.AddrPort) (Socket, error) {
	return Socket{}, errors.New("not supported on this system")
}
