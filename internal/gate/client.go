package gate

import (
	"strconv"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// A Client is who sent a message, as far as that is known.
type Client struct {
	Upstream  string // where the message goes
	Server    string // distinguishes the upstream from others with its name, which gates on the same store may have; empty if none has
	Key       string // names the session or the credentials, to distinguish clients; see [ClientKey]
	Principal policy.Principal
}

// Prefixes in a client key that introduce the principal, the session and the
// digest of the credentials.
const (
	principalPrefix   = "principal "
	sessionPrefix     = "session "
	credentialsPrefix = "credentials "
)

// ClientKey distinguishes clients: by their principal, and by their session or else
// by a digest of the credentials that the upstream sees. It is empty where nothing
// tells them apart.
func ClientKey(p policy.Principal, session, credentials string) string {
	key := ""
	switch {
	case session != "":
		key = sessionPrefix + session
	case credentials != "":
		key = credentialsPrefix + credentials
	}
	if p.Anonymous {
		return key
	}
	principal := principalPrefix + strconv.Quote(p.ID)
	if key == "" {
		return principal
	}
	return principal + " " + key
}

// LocalHost returns what stands in the place of credentials for an agent host
// without any, on the machine of the gate's own user: all programs of the user with
// the same name count as one client.
func LocalHost(name string) string { return "local host " + strconv.Quote(name) }

// SessionIn returns the session in the key of a client, if it has one.
func SessionIn(key string) (string, bool) {
	rest := strings.TrimPrefix(key[len(PrincipalIn(key)):], " ")
	return strings.CutPrefix(rest, sessionPrefix)
}

// PrincipalIn returns the part of a client's key that names its principal. It is
// empty for an anonymous client.
func PrincipalIn(key string) string {
	rest, ok := strings.CutPrefix(key, principalPrefix)
	if !ok {
		return ""
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return ""
	}
	return key[:len(principalPrefix)+len(quoted)]
}

// Peer names the client itself: an owner may have several clients, each with a
// session and with ids of requests of its own.
func (c Client) Peer() string { return c.Upstream + " " + c.Key }

// Owner names whose tasks those of this client are. Shared says that nobody can
// tell the clients with this owner apart; then the id of a task alone gives access
// to it.
func (c Client) Owner() (owner string, shared bool) {
	upstream := c.Upstream
	if c.Server != "" {
		upstream += " " + c.Server
	}
	if !c.Principal.Anonymous {
		return upstream + " " + principalPrefix + c.Principal.ID, false
	}
	return upstream + " " + c.Key, c.Key == ""
}
