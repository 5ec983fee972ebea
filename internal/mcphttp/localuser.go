package mcphttp

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// A localUser knows whether the user that runs the gate has opened a connection to
// it. It finds that out when it is first asked.
type localUser struct {
	once sync.Once
	conn net.Conn
	own  bool
}

type localUserKey struct{}

// WithLocalUser is an [http.Server]'s ConnContext, which lets the handler find out
// whether a program of the gate's own user has opened a connection.
func WithLocalUser(ctx context.Context, c net.Conn) context.Context {
	client, err := netip.ParseAddrPort(c.RemoteAddr().String())
	local, localErr := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil || localErr != nil || !client.Addr().Unmap().IsLoopback() || !local.Addr().Unmap().IsLoopback() {
		return ctx
	}
	return context.WithValue(ctx, localUserKey{}, &localUser{conn: c})
}

// isOwn reports whether the client's end of the connection belongs to the user that
// runs the gate. It is false where the system does not say so.
func (u *localUser) isOwn() bool {
	u.once.Do(func() {
		uid, err := localuser.Of(u.conn)
		u.own = err == nil && uid == os.Getuid()
	})
	return u.own
}

// forwarded are headers that proxies add. A proxy on this machine speaks for
// clients elsewhere.
var forwarded = [...]string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"}

// localHost returns what distinguishes a modern client whose program the gate's own
// user runs on this machine. It is empty for other clients.
func (c *client) localHost() string {
	name, _ := c.meta.Member(wire.MetaClientInfo).Member("name").Text()
	if c.era != wire.Modern || name == "" || !c.Local() {
		return ""
	}
	return gate.LocalHost(name)
}

// Local implements [conversation.Origin].
func (c *client) Local() bool {
	guard := c.h.settings().Guard
	user, known := c.r.Context().Value(localUserKey{}).(*localUser)
	proxied := func(name string) bool { return c.r.Header[name] != nil }
	return known && c.agent.Principal.Anonymous && guard.Loopback && len(guard.Hosts) == 0 &&
		!slices.ContainsFunc(forwarded[:], proxied) && c.credentials() == "" && user.isOwn()
}
