// Package publicip keeps connections away from addresses that are not public.
package publicip

import (
	"errors"
	"net/netip"
	"syscall"
)

// ErrPrivate is the error of a connection to an address that is not public.
var ErrPrivate = errors.New("the address is private")

// Only refuses connections to addresses that are not public. A [net.Dialer] with it as its Control calls
// it with the resolved address, so a DNS name cannot hide a private one.
func Only(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap()
	//mutate:false TestOnly a webhook or an authorization server may have a private address
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return ErrPrivate
	}
	for _, network := range reserved {
		if network.Contains(ip) {
			return ErrPrivate
		}
	}
	return nil
}

// reserved are networks that are not public, although package netip counts them as global: shared
// addresses of providers, networks for tests, benchmarks and protocols, and IPv6 addresses that contain
// an IPv4 address.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("fec0::/10"), // of a site, before fc00::/7
}
