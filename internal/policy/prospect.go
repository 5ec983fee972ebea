package policy

import "strings"

// A Prospect is the set of possible outcomes of calls, whatever their arguments and the
// time. It has every possible outcome, and may have impossible ones.
type Prospect struct {
	Forward bool
	Hold    bool
	Deny    bool
}

// Denied reports whether every call is denied.
func (p Prospect) Denied() bool { return !p.Forward && !p.Hold }

// String returns the possible actions, such as "forward|approve".
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

// Prospect returns the possible outcomes of calls by a principal of something that an
// upstream offers.
func (s *Snapshot) Prospect(n Named, who Principal) (all Prospect) {
	if !n.Kind.known() || TooLong(n.Kind, n.Name) {
		return Prospect{Deny: true}
	}
	if misspelled(n.Kind, withoutVariables(n.Name)) != "" {
		forwards := s.observe && s.strictest == Forward
		return Prospect{Forward: forwards, Deny: !forwards}
	}
	t := target{known: ofCaller, upstream: n.Upstream, kind: n.Kind, name: n.Name, principal: who}
	for i := range s.rules {
		r := &s.rules[i]
		if r.unfit(&t) != "" {
			continue
		}
		all = all.or(s.pinnedProspect(s.prospectOf(r, n, who), r, n))
		if !r.depends(&t) {
			return all
		}
	}
	return all.or(s.pinnedProspect(s.prospectOf(&s.fallback, n, who), &s.fallback, n))
}

func (p Prospect) or(q Prospect) Prospect {
	return Prospect{Forward: p.Forward || q.Forward, Hold: p.Hold || q.Hold, Deny: p.Deny || q.Deny}
}

// prospectOf returns the possible outcomes of calls that r decides.
func (s *Snapshot) prospectOf(r *rule, n Named, who Principal) Prospect {
	if r.observed {
		return Prospect{Forward: true}
	}
	switch r.Action {
	case Forward:
		return Prospect{Forward: true}
	case Approve:
		return Prospect{Hold: true}
	case AskPolicies:
		q := newQuestion(&Call{Upstream: n.Upstream, Name: n.Name, Principal: who}, n.Kind, nil)
		p := s.policies.prospect(q)
		if n.Changed && p.Forward && s.policies.readHints(q) {
			p.Forward, p.Hold = false, true
		}
		return p
	default:
		return Prospect{Deny: true}
	}
}

func (s *policySet) prospect(q *question) Prospect {
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
