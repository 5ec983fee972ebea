package conversation

import (
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A Host is a kind of agent host with its time limit for calls.
type Host struct {
	Name  string        // of its clientInfo; a final * matches any suffix
	Limit time.Duration // 0 means no limit
}

// hosts are the measured limits of hosts; see docs/hosts.md.
var hosts = []Host{
	{"claude-code", 0},
	{"thoughtgate-call", 0},
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

// viaRemote begins the suffix that mcp-remote adds to the name of the host behind it.
const viaRemote = " (via mcp-remote "

// hostNamed returns the host with a name.
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

// Margins between the hold time of a call and the limit of the host, so that
// the answer arrives before the host times out.
const (
	minMargin = 10 * time.Second
	maxMargin = 30 * time.Second
)

// maxHold returns how long a call of the host is held. It is 0 if the host has no limit.
func (h Host) maxHold() time.Duration {
	if h.Limit == 0 {
		return 0
	}
	margin := min(max(h.Limit/10, minMargin), maxMargin)
	return max(h.Limit-margin, h.Limit/2)
}

// host returns the host that sent m.
func (s *sender) host(m *jsonrpc.Message) (Host, bool) {
	name, _ := m.Params.Meta.Member(mcpname.MetaClientInfo).Member("name").Text()
	if name == "" {
		name = s.gateway.cfg.Catalog.Handshake(s.client.Identity()).Session.Client
	}
	return s.gateway.Waiting().hostNamed(name)
}

// holdTime returns how long the request m is kept open: as long as its host allows. For unknown
// hosts it is longer if they want progress notifications, because these reset most time-outs.
func (s *sender) holdTime(m *jsonrpc.Message) time.Duration {
	w := s.gateway.Waiting()
	host, known := s.host(m)
	switch {
	case known && host.Limit == 0:
		return w.HoldUnlimited
	case known:
		return host.maxHold()
	case progressToken(m).Present():
		return w.HoldWithProgress
	default:
		return w.Hold
	}
}

// limitMargin is how much earlier than its limit a host may time out.
const limitMargin = 5 * time.Second

// timedOut reports whether a client cancels a held call only because its time limit has passed:
// its reason says so, or its host is known to time out by then.
func (h Host) timedOut(reason string, held time.Duration) bool {
	reason = strings.ToLower(reason)
	return strings.Contains(reason, "timed out") || strings.Contains(reason, "timeout") ||
		h.Limit > 0 && held >= h.Limit-limitMargin
}
