package mcphttp_test

import (
	"net"
	"os"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// The gate distinguishes its own user's programs from others. Tests that run as root try both.
func TestLocalUser(t *testing.T) {
	uids := []int{os.Getuid()}
	if os.Getuid() == 0 {
		uids = append(uids, testenv.Nobody)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, uid := range uids {
		testenv.ConnectAs(t, uid, l.Addr().String(), "")
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if own := mcphttp.IsOwn(mcphttp.WithLocalUser(t.Context(), c)); own != (uid == os.Getuid()) {
			t.Errorf("a connection of user %d counts as one of the user of the gate: %t", uid, own)
		}
	}
}
