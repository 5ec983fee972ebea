package catalog

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// A Client is the sender of a message, as far as it is known.
type Client struct {
	Upstream  string // name of the upstream
	Server    string // identifies the upstream if other gates on the same store use its name; may be empty
	Key       string // identifies the session or the credentials; see [ClientKey]
	Principal policy.Principal
}

// Prefixes of the parts of a client key: the principal, the session, and the digest of the
// credentials.
const (
	principalPrefix   = "principal "
	sessionPrefix     = "session "
	credentialsPrefix = "credentials "
)

// ClientKey returns the key that tells clients apart: by their principal, and by their session or
// else a digest of the credentials for the upstream. It is empty for a client without any of
// these.
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

// LocalHost returns the credentials part of the key for an anonymous agent host on the user's
// machine. All programs of the user with the same name count as one client.
func LocalHost(name string) string { return localHostPrefix + strconv.Quote(name) }

const localHostPrefix = "local host "

// KnownByName reports whether only the name of the program tells an owner of tasks from others;
// see [LocalHost].
func KnownByName(owner string) bool {
	return strings.Contains(owner, " "+credentialsPrefix+localHostPrefix)
}

// SessionIn returns the session in a client key, if any.
func SessionIn(key string) (string, bool) {
	rest := strings.TrimPrefix(key[len(PrincipalIn(key)):], " ")
	return strings.CutPrefix(rest, sessionPrefix)
}

// PrincipalIn returns the principal's part of a client key. It is empty for an anonymous client.
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

// PrincipalID returns the id of the principal that [PrincipalIn] has returned, or "".
func PrincipalID(principal string) string {
	id, err := strconv.Unquote(strings.TrimPrefix(principal, principalPrefix))
	if err != nil {
		return ""
	}
	return id
}

// OwnerIn returns the part of a client's key that identifies the owner: its
// principal, or the whole key of an anonymous client.
//
//mutate:swap ", key" `, "anonymous"` internal/mcphttp.TestAnswersStayWithTheirPrincipal anonymous sessions share a pool
func OwnerIn(key string) string { return cmp.Or(PrincipalIn(key), key) }

// Peer identifies the client. An owner may have several clients, each with its own session and
// request ids.
func (c Client) Peer() string { return c.Upstream + " " + c.Key }

// Owner identifies the owner of the client's tasks. If shared is true, the clients with this
// owner cannot be told apart, so the id of a task is enough to access it.
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
