package signin_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zalando/go-keyring"

	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/signin"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/authserver"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
)

// file returns the file of the only server.
func (w *world) file() string {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.state, "sign-ins", "*.json"))
	if err != nil || len(files) != 1 {
		w.t.Fatal(files, err)
	}
	return files[0]
}

// Files that another user could have written or can read are refused, and so is such a directory.
func TestFilesOfOthersAreRefused(t *testing.T) {
	for what, damage := range map[string]func(file string) error{
		"is open to other users": func(file string) error { return os.Chmod(file, 0o640) },
		"is a symbolic link": func(file string) error {
			return errors.Join(os.Rename(file, file+"-real"), os.Symlink(file+"-real", file))
		},
		"belongs to another user": func(file string) error { return os.Chown(file, 12345, -1) },
		"is damaged":              func(file string) error { return os.WriteFile(file, []byte("{"), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, authserver.Options{})
			g := w.gate(newBrowser(t).use)
			g.works()
			if err := damage(w.file()); errors.Is(err, os.ErrPermission) {
				t.Skip("only root can change the owner of a file")
			} else if err != nil {
				t.Fatal(err)
			}
			if token, err := g.Token(t.Context(), httpclient.Peer{}, nil); token != "" || err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("token %q, %v", token, err)
			}
		})
	}
	w := newWorld(t, authserver.Options{})
	if err := os.Mkdir(filepath.Join(w.state, "sign-ins"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := w.gate().ask(); err == nil || !strings.Contains(err.Error(), "is open to other users") {
		t.Error(err)
	}
}

// With a keyring, the file is sealed with a key of the keyring. If the keyring has lost the key or
// a gate cannot use it, the person signs in again.
func TestKeyringSealsFiles(t *testing.T) {
	keyring.MockInit()
	w := newWorld(t, authserver.Options{})
	b := newBrowser(t)
	sealed := func(c *signin.Config) {
		b.use(c)
		c.Store = signin.NewStore(w.state, signin.SystemKeyring{})
	}
	w.gate(sealed).works()
	w.gate(sealed).works()
	text, err := os.ReadFile(w.file())
	if err != nil {
		t.Fatal(err)
	}
	w.seen.Range(func(token, _ any) bool {
		if strings.Contains(string(text), token.(string)) || strings.Contains(string(text), `"access"`) {
			t.Errorf("the file is not sealed: %s", text)
		}
		return true
	})
	keyring.MockInit()
	w.gate(sealed).works()
	if b.opened.Load() != 2 {
		t.Errorf("%d browsers were opened", b.opened.Load())
	}
	w.gate(b.use).works() // without the keyring
	keyring.MockInitWithError(errors.New("locked"))
	w.gate(sealed).works()
	if b.opened.Load() != 3 {
		t.Errorf("%d browsers were opened", b.opened.Load())
	}
	w.revokeAccess(t)
	keyring.MockInit()
	w.gate(sealed).works()
	w.gate(b.use).works() // the file stays unsealed
	if b.opened.Load() != 3 {
		t.Errorf("%d browsers were opened", b.opened.Load())
	}
}

// Without a keyring that works, the file is not sealed.
func TestBrokenKeyring(t *testing.T) {
	keyring.MockInitWithError(errors.New("locked"))
	w := newWorld(t, authserver.Options{})
	g := w.gate(newBrowser(t).use, func(c *signin.Config) {
		c.Store = signin.NewStore(w.state, signin.SystemKeyring{})
	})
	g.works()
	w.gate().works()
}

// Logout revokes the tokens of a server and removes them, by the name of any wrap that uses them or
// by URL. The next request signs in again.
func TestLogout(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	b := newBrowser(t)
	g := w.gate(b.use)
	g.works()
	w.gate(func(c *signin.Config) { c.Name = "docs" }).works()
	store := signin.NewStore(w.state, nil)
	to := func(server, issuer string) *http.Client { return oauth.HTTPClient(nil, server, issuer) }
	damaged := filepath.Join(w.state, "sign-ins", "0.json") // of another server
	if err := os.WriteFile(damaged, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Logout(t.Context(), "other", to); err == nil || !strings.Contains(err.Error(), damaged+" is damaged") {
		t.Errorf("a damaged file: %v", err)
	}
	if ended, err := store.Logout(t.Context(), "docs", to); err != nil || len(ended) != 1 {
		t.Errorf("beside a damaged file: %+v, %v", ended, err)
	}
	g.works()
	w.gate(func(c *signin.Config) { c.Name = "docs" }).works()
	if err := os.Remove(damaged); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Logout(t.Context(), "other", to); !errors.Is(err, signin.ErrNotSignedIn) || !strings.Contains(err.Error(), "files, docs ("+w.url+")") {
		t.Errorf("another name: %v", err)
	}
	for i, of := range []string{"docs", w.url} {
		ended, err := store.Logout(t.Context(), of, to)
		if err != nil || len(ended) != 1 || ended[0] != (signin.Logout{URL: w.url}) {
			t.Fatalf("%+v, %v", ended, err)
		}
		w.seen.Range(func(token, _ any) bool {
			if _, err := w.Verify(token.(string), ""); err == nil {
				t.Error("a token is valid after the logout")
			}
			return true
		})
		if token, err := g.Token(t.Context(), httpclient.Peer{}, nil); token != "" || err != nil {
			t.Errorf("after the logout: token %q, %v", token, err)
		}
		g.works()
		if n := b.opened.Load(); n != int64(i+3) {
			t.Errorf("%d browsers were opened", n)
		}
	}
	w.SetHooks(authserver.Hooks{Request: func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}})
	if ended, err := store.Logout(t.Context(), "files", to); err != nil || len(ended) != 1 || ended[0].Revoked == nil {
		t.Errorf("with a server that is down: %+v, %v", ended, err)
	}
	if _, err := store.Logout(t.Context(), "files", to); !errors.Is(err, signin.ErrNotSignedIn) {
		t.Errorf("after the last logout: %v", err)
	}
}
