package conversation

import (
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A Host says how long a kind of agent host lets a call run.
type Host struct {
	Name  string        // as its clientInfo says; a * at the end stands for anything
	Limit time.Duration // 0 means that it has none
}

// hosts are those that were measured; docs/hosts.md says how.
var hosts = []Host{
	{"claude-code", 0},
	{"copilot-cli", 0},
	{"opencode", 0},
	{"codex-mcp-client", 300 * time.Second},
	{"gemini-cli-mcp-client*", 600 * time.Second},
	{"qwen-cli-mcp-client*", 600 * time.Second},
	{"@cline/core", time.Minute},
	{"continue-cli-client", time.Minute},
	{"@langchain/mcp-adapters", time.Minute},
	{"inspector-cli", time.Minute},
}

// viaRemote begins what a bridge adds to the name of the host behind it.
const viaRemote = " (via mcp-remote "

// hostNamed returns what is known of the host with a name.
func (w *Waiting) hostNamed(name string) (Host, bool) {
	name, _, _ = strings.Cut(name, viaRemote)
	for _, known := range [][]Host{w.Hosts, hosts} {
		for _, h := range known {
			prefix, open := strings.CutSuffix(h.Name, "*")
			if name == h.Name || open && strings.HasPrefix(name, prefix) {
				return h, true
			}
		}
	}
	return Host{}, false
}

// Margins between the time that a call is held and the host's own limit, so that
// the answer arrives before the host gives up.
const (
	leastMargin = 10 * time.Second
	mostMargin  = 30 * time.Second
)

// held returns how long a call of the host is held. It is 0 if the host has no
// limit.
func (h Host) held() time.Duration {
	if h.Limit == 0 {
		return 0
	}
	margin := min(max(h.Limit/10, leastMargin), mostMargin)
	return max(h.Limit-margin, h.Limit/2)
}

// host returns what is known of the host that sent m.
func (s *sender) host(m *jsonrpc.Message) (Host, bool) {
	name, _ := m.Params.Meta.Member(wire.MetaClientInfo).Member("name").Text()
	if name == "" {
		name = s.hub.cfg.Gate.About(s.client.From()).Session.Client
	}
	return s.hub.Waiting().hostNamed(name)
}

// patience is how long the client may be kept waiting: as long as its host is
// known to let it, and else longer if it is shown progress, which is what keeps
// most clients from giving up.
func (s *sender) patience(m *jsonrpc.Message) time.Duration {
	w := s.hub.Waiting()
	host, known := s.host(m)
	switch {
	case known && host.Limit == 0:
		return w.Forever
	case known:
		return host.held()
	case progressToken(m).Present():
		return w.Longest
	default:
		return w.Hold
	}
}

// limitMargin is how much earlier than its limit a host may give up.
const limitMargin = 5 * time.Second

// gaveUp reports whether a client that cancels a call which has been held for some
// time means no more than that it waits no longer: because it says so, or because
// its host is known to give up by then.
func (h Host) gaveUp(reason string, held time.Duration) bool {
	reason = strings.ToLower(reason)
	return strings.Contains(reason, "timed out") || strings.Contains(reason, "timeout") ||
		h.Limit > 0 && held >= h.Limit-limitMargin
}
