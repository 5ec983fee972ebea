//go:build !linux

package localuser

import (
	"errors"
	"net/netip"
)

// socketUser returns an error: this system is not supported.
func socketUser(_, _ netip.AddrPort) (uid int, err error) {
	return 0, errors.New("not supported on this system")
}
