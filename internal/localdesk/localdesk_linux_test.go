package localdesk_test

import (
	"os"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// The inbox answers programs of its user only.
func TestInboxRefusesProgramOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a program of another user")
	}
	g := start(t, t.TempDir(), "a")
	address := g.Addr().String()
	eventually(t, "the gate serves", func() bool { return answer(address) == "a" })
	if heard := testenv.ConnectAs(t, testenv.Nobody, address, "hello").Heard(); heard != "" {
		t.Errorf("a program of another user received %q", heard)
	}
	if heard := testenv.ConnectAs(t, os.Getuid(), address, "").Heard(); heard != "a" {
		t.Errorf("a program of the user received %q", heard)
	}
}
