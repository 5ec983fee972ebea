package policy

import "strings"

// A Prospect says what calls may come to, whatever their arguments and the
// time. It never leaves out what can happen, and may hold what cannot.
type Prospect struct {
	Forward bool
	Hold    bool
	Deny    bool
}

// Denied reports whether every call is denied.
func (p Prospect) Denied() bool { return !p.Forward && !p.Hold }

// String returns the actions that calls may come to, such as "forward|approve".
func (p Prospect) String() string {
	var actions []string
	for _, a := range []struct {
		possible bool
		action   Action
	}{{p.Forward, Forward}, {p.Hold, Approve}, {p.Deny, Deny}} {
		if a.possible {
			actions = append(actions, string(a.action))
		}
	}
	return strings.Join(actions, "|")
}

// Prospect returns what calls of something that an upstream offers may come to
// if the given principal makes them.
func (s *Snapshot) Prospect(n Named, who Principal) Prospect {
	if !n.Kind.known() {
		return Prospect{Deny: true}
	}
	if misspelled(n.Kind, withoutVariables(n.Name)) != "" {
		return Prospect{Forward: s.observe, Deny: !s.observe}
	}
	r := s.decide(&target{n.Upstream, n.Kind, n.Name, &who})
	if s.observe || r.Observe {
		return Prospect{Forward: true}
	}
	switch r.Action {
	case Forward:
		return Prospect{Forward: true}
	case Approve:
		return Prospect{Hold: true}
	case AskPolicies:
		return s.policies.prospect(n, &who)
	default:
		return Prospect{Deny: true}
	}
}

func (s *policySet) prospect(n Named, who *Principal) Prospect {
	q := newQuestion(&Call{Upstream: n.Upstream, Name: n.Name, Principal: *who}, n.Kind, nil)
	p := Prospect{Deny: true}
	for _, policy := range s.about(q).policies {
		switch {
		case !policy.permits():
			if len(policy.tree().Conditions) == 0 {
				return Prospect{Deny: true}
			}
		case policy.approval:
			p.Hold = true
		default:
			p.Forward = true
		}
	}
	return p
}
