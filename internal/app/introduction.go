package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// Introduction returns what a person at a terminal needs to know of the gate. It has secrets. Run
// then does not log the same.
func (a *App) Introduction() string {
	a.introduced = true
	cfg := a.base.cfg
	var b strings.Builder
	line := func(label, text string) { fmt.Fprintf(&b, "%-8s %s\n", label, text) }
	label := "agents"
	for _, u := range cfg.Upstreams {
		line(label, a.agentURL(u)+" → "+target(u))
		label = ""
	}
	if link := a.LoginLink(); link != "" {
		line("inbox", link)
		line("token", a.GeneratedToken()+" (for the command line, until the gate stops; operators.token sets a permanent one)")
	} else {
		line("inbox", a.operators.url())
	}
	line("policy", policyText(cfg))
	return b.String()
}

// agentURL returns where agents reach an upstream.
func (a *App) agentURL(u config.Upstream) string {
	if a.agents.listener.Addr().Network() == "unix" {
		return "unix:" + a.AgentAddr() + " " + u.Paths[0]
	}
	scheme := "http://"
	if a.base.cfg.ListenTLS.CertFile != "" {
		scheme = "https://"
	}
	return scheme + a.AgentAddr() + u.Paths[0]
}

// target names a server, without its arguments and its query, which may have secrets.
func target(u config.Upstream) string {
	if u.Command != nil {
		return u.Command[0]
	}
	return u.URL.Scheme + "://" + u.URL.Host + u.URL.EscapedPath()
}

// policyText describes the policy on one line.
func policyText(cfg config.Config) string {
	if !hasPolicy(cfg) {
		return "no rules: every call is forwarded"
	}
	var parts []string
	if n := len(cfg.Rules); n > 0 {
		parts = append(parts, number(n, "rule"))
	}
	if n := len(cfg.Cedar.Sources); n > 0 {
		parts = append(parts, number(n, "Cedar file"))
	}
	text := strings.Join(append(parts, "default "+string(cfg.Default.Action)), ", ")
	if cfg.Observe {
		text += "; mode observe: every call is forwarded"
		if n := len(slices.DeleteFunc(slices.Clone(cfg.Rules), func(r policy.Rule) bool { return r.Mode != policy.Enforce })); n > 0 {
			text += ", except by " + number(n, "enforced rule")
		}
	}
	return text
}

func number(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
