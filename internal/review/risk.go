package review

// A Risk describes the possible effect of a call, as declared by the tool's server.
type Risk string

// The risks.
const (
	RiskDestroys Risk = "may destroy"
	RiskChanges  Risk = "makes changes"
	RiskReads    Risk = "read-only"
	RiskUnknown  Risk = "effects unknown" // the server does not say
)

// Risk returns the worst effect that h allows.
func (h *Hints) Risk() Risk {
	is := func(flag *bool) bool { return flag != nil && *flag }
	switch {
	case h == nil:
		return RiskUnknown
	case is(h.Destructive):
		return RiskDestroys
	case is(h.ReadOnly):
		return RiskReads
	case h.Destructive != nil:
		return RiskChanges
	default:
		return RiskUnknown
	}
}
