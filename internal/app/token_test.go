package app_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
)

// Two gates have the same state directory. The second gate does not overwrite the first one's
// token file, which has the only copy of that token. The file can be used again when its gate
// has ended.
func TestTokenFileOfAnotherGate(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	state := t.TempDir()
	gate := func() (a *app.App, stop func() error) {
		t.Helper()
		a, stop = start(t, fmt.Sprintf("%sstate_dir: %s\n", gatewayFor("http://127.0.0.1:1/"), state))
		if err := a.SaveToken(); err != nil {
			t.Fatal(err)
		}
		return a, stop
	}
	accepts := func(a *app.App, name string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(state, name))
		if err != nil || a.TokenFile() != filepath.Join(state, name) {
			t.Fatalf("the token is in %s; want %s (%v)", a.TokenFile(), name, err)
		}
		token := "Bearer " + strings.TrimSpace(string(text))
		status, answer, _ := request(t, http.DefaultClient, "GET", "http://"+a.OperatorAddr()+"/api/approvals", "", "Authorization", token)
		if status != http.StatusOK {
			t.Errorf("the gate answers the token in %s with %d %s", name, status, answer)
		}
	}
	first, stopFirst := gate()
	second, stopSecond := gate()
	accepts(first, "operator-token")
	accepts(second, "operator-token-2")
	if err := stopFirst(); err != nil {
		t.Error(err)
	}
	third, stopThird := gate()
	accepts(second, "operator-token-2")
	accepts(third, "operator-token")
	for _, stop := range []func() error{stopSecond, stopThird} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}
