package mcphttp

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// A localUser tells whether the user that runs the gate has opened a connection to
// it. It finds that out when it is first asked.
type localUser struct {
	once          sync.Once
	client, local netip.AddrPort
	own           bool
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
	return context.WithValue(ctx, localUserKey{}, &localUser{client: client, local: local})
}

// isOwn reports whether the client's end of the connection belongs to the user that
// runs the gate. It is false where the system does not say so.
func (u *localUser) isOwn() bool {
	u.once.Do(func() {
		for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			table, err := os.Open(name)
			if err != nil {
				continue
			}
			uid, found := socketUser(table, u.client, u.local)
			_ = table.Close()
			if found {
				u.own = uid == strconv.Itoa(os.Getuid())
				return
			}
		}
	})
	return u.own
}

// socketUser returns the user whose socket at one address is connected to the
// other, from a table of sockets as Linux writes it.
func socketUser(table io.Reader, at, to netip.AddrPort) (uid string, found bool) {
	const local, remote, user = 1, 2, 7 // columns
	ends := make([][2]string, 0, 2)     // a socket of IPv6 may speak IPv4
	for _, form := range []func(netip.Addr) netip.Addr{netip.Addr.Unmap, func(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }} {
		ends = append(ends, [2]string{socketName(form(at.Addr()), at.Port()), socketName(form(to.Addr()), to.Port())})
	}
	for lines := bufio.NewScanner(table); lines.Scan(); {
		columns := strings.Fields(lines.Text())
		if len(columns) > user && slices.Contains(ends, [2]string{columns[local], columns[remote]}) {
			return columns[user], true
		}
	}
	return "", false
}

// socketName returns an address as Linux writes it in its tables of sockets: words
// of 32 bits, each with its lowest byte first.
func socketName(addr netip.Addr, port uint16) string {
	bytes := addr.AsSlice()
	for i := 0; i+4 <= len(bytes); i += 4 {
		slices.Reverse(bytes[i : i+4])
	}
	return strings.ToUpper(hex.EncodeToString(bytes)) + fmt.Sprintf(":%04X", port)
}

// forwarded are headers that proxies add. A proxy on this machine speaks for
// clients elsewhere.
var forwarded = [...]string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"}

// localHost returns what tells an anonymous modern client apart whose program the
// gate's own user runs on this machine: the name of its host. All such programs
// with the same name count as one client. It is empty for other clients.
func (x *exchange) localHost() string {
	guard := x.h.settings().Guard
	if x.era != wire.Modern || !x.agent.Principal.Anonymous || !guard.Loopback || len(guard.Hosts) > 0 {
		return ""
	}
	name, _ := x.meta.Member(wire.MetaClientInfo).Member("name").Text()
	user, known := x.r.Context().Value(localUserKey{}).(*localUser)
	if name == "" || !known || slices.ContainsFunc(forwarded[:], func(h string) bool { return x.r.Header[h] != nil }) || !user.isOwn() {
		return ""
	}
	return "local host " + strconv.Quote(name)
}
