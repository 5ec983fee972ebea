package identity

// An Error says why an agent was not recognised.
type Error struct {
	Reason      string // may be shown to the agent
	Unavailable bool   // it is not the agent's fault: the issuer cannot be asked
	Cause       error  // for the log alone

	given bool // whether there was anything to recognise it by
}

// Error implements error.
func (e *Error) Error() string { return e.Reason }

// Unwrap returns what is behind e.
func (e *Error) Unwrap() error { return e.Cause }

var (
	errNothing    = &Error{Reason: "credentials required"}
	errNotKnown   = &Error{Reason: "unknown credentials", given: true}
	errTwoNames   = &Error{Reason: "the proxy sent more than one name", given: true}
	errNoName     = &Error{Reason: "the certificate does not name the agent", given: true}
	errNotTrusted = &Error{Reason: "the certificate is not verified", given: true}
)

func badCertificate(cause error) *Error {
	return &Error{Reason: "the certificate has expired, or its authority is not accepted any more", Cause: cause, given: true}
}
