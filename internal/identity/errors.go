package identity

// An Error says why an agent was not authenticated.
type Error struct {
	Reason      string // safe to send to the agent
	Unavailable bool   // the issuer cannot be reached
	Cause       error  // for the log only

	// InsufficientScope means that the token is valid, but does not have the scopes of the resource.
	InsufficientScope bool

	given bool // the request had credentials
}

// Code returns the error code of RFC 6750, or "" if the request had no credentials.
func (e *Error) Code() string {
	switch {
	case e.InsufficientScope:
		return "insufficient_scope"
	case e.given:
		return "invalid_token"
	default:
		return ""
	}
}

// Error implements error.
func (e *Error) Error() string { return e.Reason }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

var (
	errNoCredentials    = &Error{Reason: "credentials required"}
	errUnknown          = &Error{Reason: "unknown credentials", given: true}
	errTwoProxyNames    = &Error{Reason: "the proxy sent more than one name", given: true}
	errNoName           = &Error{Reason: "the certificate does not name the agent", given: true}
	errAmbiguousSubject = &Error{Reason: "the certificate has more than one common name or serial number in its subject", given: true}
	errNotTrusted       = &Error{Reason: "the certificate is not verified", given: true}
)
