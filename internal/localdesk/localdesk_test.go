package localdesk_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func join(t *testing.T, state string) *localdesk.Desk {
	t.Helper()
	d, err := localdesk.Join(state, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A gate shares a desk, and writes its name to every connection. It has locks of its own,
// like a process.
type gate struct {
	*localdesk.Listener

	done sync.WaitGroup
}

func start(t *testing.T, state, name string) *gate {
	t.Helper()
	return serve(t, listen(t, state, noSessions), name)
}

// noSessions is the endSessions of a desk without sessions.
func noSessions(context.Context) error { return nil }

func listen(t *testing.T, state string, endSessions func(context.Context) error) *localdesk.Listener {
	t.Helper()
	l, err := join(t, state).Listen(nil, endSessions)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func serve(t *testing.T, l *localdesk.Listener, name string) *gate {
	t.Helper()
	g := &gate{Listener: l}
	g.done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				return
			}
			_, _ = io.WriteString(conn, name)
			_ = conn.Close()
		}
	})
	t.Cleanup(g.end)
	return g
}

func (g *gate) end() {
	_ = g.Close()
	g.done.Wait()
}

// answer returns the name of the gate that answers at an address, or nothing.
func answer(address string) string {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	text, _ := io.ReadAll(conn)
	return string(text)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	late, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("timed out waiting until " + what)
		}
	}
}

// When the serving gate ends, another one serves at the same address.
func TestNextGateServesAtTheSameAddress(t *testing.T) {
	state := t.TempDir()
	a := start(t, state, "a")
	address := a.Addr().String()
	eventually(t, "a serves", func() bool { return answer(address) == "a" })
	b, c := start(t, state, "b"), start(t, state, "c")
	if b.Addr().String() != address || c.Addr().String() != address {
		t.Errorf("addresses %s and %s; want %s", b.Addr(), c.Addr(), address)
	}
	inbox, err := localdesk.Find(state)
	if err != nil || inbox.URL != "http://"+address || inbox.Token != join(t, state).Token() {
		t.Errorf("Find = %+v, %v", inbox, err)
	}
	a.end()
	eventually(t, "b or c serves", func() bool { return answer(address) != "" })
	if answer(address) == "b" {
		b.end()
	} else {
		c.end()
	}
	eventually(t, "the last serves", func() bool { return answer(address) != "" })
	b.end()
	c.end()
	if _, err := localdesk.Find(state); !errors.Is(err, localdesk.ErrNotRunning) {
		t.Errorf("Find = %v; want %v", err, localdesk.ErrNotRunning)
	}
	d := start(t, state, "d")
	eventually(t, "d serves at the address of a", func() bool { return answer(address) == "d" })
	d.end()
}

// If another program takes the address, no token goes there, and the inbox moves to another
// address that all gates know.
func TestInboxMovesAwayFromAnotherProgram(t *testing.T) {
	state := t.TempDir()
	other := start(t, state, "first")
	address := other.Addr().String()
	eventually(t, "the first one serves", func() bool { return answer(address) == "first" })
	other.end()
	stranger, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	a, b := start(t, state, "a"), start(t, state, "b")
	var moved localdesk.Inbox
	eventually(t, "the inbox moves", func() bool {
		found, err := localdesk.Find(state)
		if err == nil {
			moved = found
		}
		return err == nil
	})
	if strings.HasSuffix(moved.URL, address) {
		t.Fatalf("the token goes to another program at %s", moved.URL)
	}
	for _, g := range []*gate{a, b} {
		if at := "http://" + g.Addr().String(); at != moved.URL {
			t.Errorf("Addr = %s; the inbox is at %s", at, moved.URL)
		}
	}
	eventually(t, "the inbox is served there", func() bool { return answer(strings.TrimPrefix(moved.URL, "http://")) != "" })
}

// Open pages have sent their sessions to the program at the old address. The inbox moves only
// after these sessions have ended.
func TestMoveEndsSessions(t *testing.T) {
	state := t.TempDir()
	tries, address := 0, ""
	l := listen(t, state, func(context.Context) error {
		if inbox, err := localdesk.Find(state); err == nil {
			t.Errorf("the inbox is at %s before the sessions have ended", inbox.URL)
		}
		if now, err := os.ReadFile(filepath.Join(localdesk.Dir(state), "address")); strings.TrimSpace(string(now)) != address {
			t.Errorf("the address is %s, %v before the sessions have ended; want %s", now, err, address)
		}
		if tries++; tries == 1 {
			return errors.New("the store cannot be reached")
		}
		return nil
	})
	address = l.Addr().String()
	stranger, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	g := serve(t, l, "a")
	eventually(t, "the inbox moves", func() bool { _, err := localdesk.Find(state); return err == nil })
	g.end()
	if tries != 2 {
		t.Errorf("sessions were ended %d times; want a second time after the first has failed", tries)
	}
}

// The inbox accepts the user and root. It closes a connection of an unknown user, because
// another user can close a connection before its user is looked up.
func TestOtherUsersAreRefused(t *testing.T) {
	for _, tt := range []struct {
		who   string
		uid   int
		err   error
		heard string
	}{
		{"the user", os.Getuid(), nil, "a"},
		{"root", 0, nil, "a"},
		{"another user", os.Getuid() + 1, nil, ""},
		{"an unknown user", 0, errors.New("its program has closed the socket"), ""},
	} {
		t.Run(tt.who, func(t *testing.T) {
			var mu sync.Mutex
			asked, uid, err := 0, os.Getuid(), error(nil)
			l := listen(t, t.TempDir(), noSessions)
			l.SetUserOf(func(net.Conn) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				asked++
				return uid, err
			})
			serve(t, l, "a")
			address := l.Addr().String()
			eventually(t, "the gate serves", func() bool { return answer(address) == "a" })
			mu.Lock()
			asked, uid, err = 0, tt.uid, tt.err
			mu.Unlock()
			if heard := answer(address); heard != tt.heard {
				t.Errorf("%s received %q; want %q", tt.who, heard, tt.heard)
			}
			mu.Lock()
			defer mu.Unlock()
			if asked != 1 {
				t.Errorf("userOf was called %d times for one connection", asked)
			}
		})
	}
}

// Find does not return the address of an earlier process while the next one has not published
// its own: another program may use it by now.
func TestLeaderWithoutAddressIsNotFound(t *testing.T) {
	state := t.TempDir()
	first := start(t, state, "first")
	eventually(t, "the first one serves", func() bool { return answer(first.Addr().String()) == "first" })
	first.end()
	lock, err := localdesk.Lock(filepath.Join(localdesk.Dir(state), "leader"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if inbox, err := localdesk.Find(state); !errors.Is(err, localdesk.ErrNotRunning) {
		t.Errorf("Find = %+v, %v; want %v", inbox, err, localdesk.ErrNotRunning)
	}
}

// Gates that start at the same time agree on the secrets and the address.
func TestConcurrentJoinsAgree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "thoughtgate")
	type shared struct{ token, signIn, address string }
	found := make(chan shared, 20)
	var joining sync.WaitGroup
	for range cap(found) {
		joining.Go(func() {
			d, err := localdesk.Join(dir, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Error(err)
				return
			}
			l, err := d.Listen(nil, noSessions)
			if err != nil {
				t.Error(err)
				return
			}
			found <- shared{d.Token(), d.SignIn(), l.Addr().String()}
			_ = l.Close()
		})
	}
	joining.Wait()
	close(found)
	all := make(map[shared]int)
	for f := range found {
		all[f]++
	}
	if len(all) != 1 {
		t.Errorf("the gates disagree: %v", all)
	}
	files, err := os.ReadDir(localdesk.Dir(dir))
	if err != nil || len(files) != 3 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	for _, f := range files {
		if about, err := f.Info(); err != nil || about.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", f.Name(), about.Mode(), err)
		}
	}
}

// servedByEarlierVersion checks that only the token is found while a process of an earlier
// version serves, which does not know the person's secret.
func servedByEarlierVersion(t *testing.T, state string) {
	t.Helper()
	file := filepath.Join(localdesk.Dir(state), "served")
	if err := os.WriteFile(file, []byte("127.0.0.1:9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := localdesk.Lock(file)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	want := localdesk.Inbox{URL: "http://127.0.0.1:9", Token: "tgo_earlier"}
	if found, err := localdesk.Find(state); err != nil || found != want {
		t.Errorf("while an earlier version serves: %+v, %v", found, err)
	}
}

// The token of a desk of an earlier version stays that of programs, and the person gets a
// secret in a file of its own, once. Without that file, only the token is found.
func TestEarlierDeskGetsASignIn(t *testing.T) {
	state := t.TempDir()
	if err := os.Mkdir(localdesk.Dir(state), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(localdesk.Dir(state), "token"), []byte("tgo_earlier\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := join(t, state)
	if d.Token() != "tgo_earlier" || len(d.SignIn()) < 20 || strings.Contains(d.SignIn(), "earlier") {
		t.Errorf("the token is %q, and the person's secret %q", d.Token(), d.SignIn())
	}
	if again := join(t, state); again.Token() != d.Token() || again.SignIn() != d.SignIn() {
		t.Error("the secrets differ after a restart")
	}
	if about, err := os.Stat(d.SignInFile()); err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("the file of the person has mode %v, %v", about.Mode(), err)
	}
	servedByEarlierVersion(t, state)
	start(t, state, "a")
	var found localdesk.Inbox
	eventually(t, "the inbox is served", func() bool {
		var err error
		found, err = localdesk.Find(state)
		return err == nil
	})
	if found.Token != d.Token() || found.SignIn != d.SignIn() {
		t.Errorf("found %+v", found)
	}
	if err := os.Remove(d.SignInFile()); err != nil {
		t.Fatal(err)
	}
	if found, err := localdesk.Find(state); err != nil || found.Token != d.Token() || found.SignIn != "" {
		t.Errorf("without the file of the person: %+v, %v", found, err)
	}
}

// Join and Find refuse a directory that other users can access.
func TestDirectoryMustBePrivate(t *testing.T) {
	for what, damage := range map[string]func(dir string) error{
		"is open to other users":  func(dir string) error { return os.Chmod(dir, 0o750) },
		"is not a directory":      replaceByLink,
		"belongs to another user": func(dir string) error { return os.Chown(dir, 12345, -1) },
	} {
		t.Run(what, func(t *testing.T) {
			state := t.TempDir()
			join(t, state)
			if err := damage(localdesk.Dir(state)); err != nil {
				if errors.Is(err, os.ErrPermission) {
					return // only root can change the owner of a file
				}
				t.Fatal(err)
			}
			_, err := localdesk.Join(state, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("Join = %v; want %q", err, what)
			}
			_, err = localdesk.Find(state)
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("Find = %v; want %q", err, what)
			}
		})
	}
}

func replaceByLink(dir string) error {
	return errors.Join(os.Rename(dir, dir+"-real"), os.Symlink(dir+"-real", dir))
}

func TestFindWithoutDesk(t *testing.T) {
	for _, state := range []string{"", t.TempDir()} {
		if _, err := localdesk.Find(state); !errors.Is(err, localdesk.ErrNoDesk) {
			t.Errorf("Find(%q) = %v; want %v", state, err, localdesk.ErrNoDesk)
		}
	}
	if _, err := localdesk.Join("", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("Join succeeded without a state directory")
	}
}

// The error names an unusable file.
func TestUnusableFileIsNamed(t *testing.T) {
	for name, text := range map[string]string{"address": "192.0.2.1:80", "token": " \n", "sign-in": "tgo_of_programs"} {
		state := t.TempDir()
		join(t, state)
		if err := os.WriteFile(filepath.Join(localdesk.Dir(state), "token"), []byte("tgo_of_programs"), 0o600); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(localdesk.Dir(state), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := localdesk.Join(state, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("Join = %v; want it to name %s", err, file)
		}
	}
}

// Browsers may use either loopback address for localhost, and passkeys need that name. So no other program may
// have the port of the inbox at one of them.
func TestLocalhostIsTheDesk(t *testing.T) {
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("no IPv6: ", err)
	} else {
		l.Close()
	}
	g := start(t, t.TempDir(), "one")
	eventually(t, "the gate serves", func() bool { return answer(g.Addr().String()) == "one" })
	_, port, err := net.SplitHostPort(g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if l, err := net.Listen("tcp6", net.JoinHostPort("::1", port)); err == nil {
		l.Close()
		t.Error("another program serves localhost at the port of the inbox")
	}
}
