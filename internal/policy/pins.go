package policy

// Pins are the definitions of tools in a lock file, and what happens to calls of tools that are
// defined otherwise. An operator may have accepted another definition; see [Call.Accepted].
type Pins struct {
	Digests  map[string]map[string]string // by upstream and tool; see [Call.Digest]
	Unpinned Deviation                    // what happens to calls of other tools
}

// A Deviation says what happens to calls of tools that deviate from the lock file.
type Deviation string

// The values of a Deviation, the mildest first.
const (
	WarnOnly Deviation = "warn" // the rule decides; people are told
	HoldCall Deviation = "hold" // a call that would be forwarded is held
	DenyCall Deviation = "deny"
)

// Pinned reports whether the definition with the digest is the one in the lock file. Without a
// lock file no tool is pinned.
func (s *Snapshot) Pinned(upstream, tool, digest string) bool {
	return s != nil && s.pins != nil && digest != "" && s.pins.Digests[upstream][tool] == digest
}

// HasPins reports whether there is a lock file.
func (s *Snapshot) HasPins() bool { return s != nil && s.pins != nil }

// deviation returns what happens to calls of a tool because of the lock file, or "".
func (s *Snapshot) deviation(n Named) Deviation {
	//mutate:swap "n.Accepted || " "" internal/app.TestAcceptedToolIsNotDenied an accepted tool still deviates from the lock file
	if s.pins == nil || n.Kind != Tool || n.Accepted || s.Pinned(n.Upstream, n.Name, n.Digest) {
		return ""
	}
	return s.pins.Unpinned
}

// pinned returns the verdict on a call of the tool n, where v is the verdict without the lock file.
func (s *Snapshot) pinned(v Verdict, n Named) Verdict {
	deviation := s.deviation(n)
	if deviation == "" {
		return v
	}
	blocked := v.Action != Forward
	if v.Would != nil {
		v = *v.Would
	}
	r := &s.fallback
	if v.Rule >= 0 {
		r = &s.rules[v.Rule]
	}
	what := "the tool is not as the lock file has it"
	if s.pins.Digests[n.Upstream][n.Name] == "" {
		what = "the tool is not in the lock file"
	}
	switch {
	case deviation == DenyCall && v.Action != Deny:
		v = Verdict{
			Action: Deny, Rule: v.Rule, Label: v.Label, Match: v.Match, Policies: v.Policies, Snapshot: v.Snapshot,
			Reason: what + "; an operator must accept the change, or pin the tool again",
		}
	case deviation == HoldCall && v.Action == Forward:
		v.Action, v.Workflow = Approve, s.workflowOf(r)
		v.Reason = what + ", so it needs approval by workflow " + v.Workflow + "; otherwise " + v.Reason
	}
	v.Changed, v.Unpinned = true, true
	if r.observed && !blocked {
		v = observed(v)
	}
	return v
}

// pinnedProspect returns the possible outcomes of calls of n, where p are those of the rule r
// without the lock file.
func (s *Snapshot) pinnedProspect(p Prospect, r *rule, n Named) Prospect {
	if r.observed {
		return p
	}
	switch s.deviation(n) {
	case DenyCall:
		return Prospect{Deny: true}
	case HoldCall:
		return Prospect{Hold: p.Hold || p.Forward, Deny: p.Deny}
	default:
		return p
	}
}

// Withholds reports whether the lock file denies calls of n. Agents must not see the definition of
// such a tool: its text could make them misuse other tools.
func (s *Snapshot) Withholds(n Named) bool { return s.deviation(n) == DenyCall }
