package mcphttp_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
)

// The user of a connection is found in the tables of Linux, for both versions of
// IP and for sockets of version 6 that speak version 4.
func TestSocketUser(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0
   1: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000     7        0 2 1 0
   2: 0100007F:C001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 3 1 0
   3: 00000000000000000000000001000000:C002 00000000000000000000000001000000:1F90 01 00000000:00000000 00:00000000 00000000  1002 0 4
   4: 0000000000000000FFFF00000100007F:C003 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1003 0 5
   5: broken
`
	for client, tt := range map[string]struct{ gate, uid string }{
		"127.0.0.1:49153":          {"127.0.0.1:8080", "1001"},
		"[::ffff:127.0.0.1]:49153": {"[::ffff:127.0.0.1]:8080", "1001"},
		"[::1]:49154":              {"[::1]:8080", "1002"},
		"127.0.0.1:49155":          {"127.0.0.1:8080", "1003"},
		"127.0.0.1:49156":          {"127.0.0.1:8080", ""},
		"127.0.0.1:8080":           {"127.0.0.1:9", ""},
	} {
		uid, found := mcphttp.SocketUser(strings.NewReader(table), netip.MustParseAddrPort(client), netip.MustParseAddrPort(tt.gate))
		if uid != tt.uid || found != (tt.uid != "") {
			t.Errorf("%s: user %q, %t; want %q", client, uid, found, tt.uid)
		}
	}
}
