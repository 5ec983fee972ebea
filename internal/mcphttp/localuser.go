package mcphttp

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
)

// A localUser finds out, when first asked, whether the user of the gate opened a connection.
type localUser struct {
	once sync.Once
	conn net.Conn
	own  bool
}

type localUserKey struct{}

// WithLocalUser is the ConnContext of an [http.Server]. It lets the handler find out whether a
// program of the user of the gate opened the connection.
func WithLocalUser(ctx context.Context, c net.Conn) context.Context {
	client, err := netip.ParseAddrPort(c.RemoteAddr().String())
	local, localErr := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil || localErr != nil || !client.Addr().Unmap().IsLoopback() || !local.Addr().Unmap().IsLoopback() {
		return ctx
	}
	return context.WithValue(ctx, localUserKey{}, &localUser{conn: c})
}

// isOwn reports whether the client end of the connection belongs to the user that runs the
// gate. It is false if the operating system does not tell.
func (u *localUser) isOwn() bool {
	u.once.Do(func() {
		uid, err := localuser.Of(u.conn)
		u.own = err == nil && uid == os.Getuid()
	})
	return u.own
}
