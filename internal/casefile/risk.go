package casefile

// A Risk is in a few words what may come of a call, by what the tool's server
// says of the tool.
type Risk string

// The risks.
const (
	RiskDestroys Risk = "may destroy"
	RiskChanges  Risk = "makes changes"
	RiskReads    Risk = "read-only"
	RiskUnknown  Risk = "effects unknown" // the server does not say
)

// Risk returns the worst that h admits of.
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
