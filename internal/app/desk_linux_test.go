package app_test

import (
	"os"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// Only the users that the configuration names can use the inbox, besides the owner.
func TestNamedUsersReachTheInbox(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a program of another user")
	}
	for users, want := range map[string]bool{"[]": false, "[daemon, '65533']": false, "[daemon, nobody]": true, "['65534']": true} {
		t.Run(users, func(t *testing.T) {
			state := t.TempDir()
			_, stop := start(t, deskGate(state, "one", "http://127.0.0.1:9", "{}")+"operators: {os_users: "+users+"}\n")
			t.Cleanup(func() { _ = stop() })
			found(t, state)
			at, err := localdesk.Find(state)
			if err != nil {
				t.Fatal(err)
			}
			address := strings.TrimPrefix(at.URL, "http://")
			const ask = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
			if heard := testenv.ConnectAs(t, testenv.Nobody, address, ask).Heard(); strings.HasPrefix(heard, "HTTP/1.1 200") != want {
				t.Errorf("the other user gets %q", heard)
			}
		})
	}
}

// A gate does not start if its configuration names an unknown user.
func TestUnknownUserPreventsStart(t *testing.T) {
	_, err := newApp(t, deskGate(t.TempDir(), "one", "http://127.0.0.1:9", "{}")+"operators: {os_users: [no-such-user]}\n")
	if err == nil || !strings.Contains(err.Error(), "operators.os_users: user: unknown user no-such-user") {
		t.Errorf("the gate starts: %v", err)
	}
}
