package operator

// MaxLimiters is the maximum number of addresses with a limiter.
const MaxLimiters = maxLimiters

// MaxRedeeming is the maximum number of codes redeemed at the same time.
const MaxRedeeming = maxRedeeming

// MaxCallbacks is the maximum number of remembered callbacks.
const MaxCallbacks = maxCallbacks

// CallbackCount returns the number of remembered callbacks.
func (a *Auth) CallbackCount() int {
	a.callbacks.mu.Lock()
	defer a.callbacks.mu.Unlock()
	return len(a.callbacks.until)
}

// AddressCount returns the number of remembered addresses.
func (a *Auth) AddressCount() int {
	a.failures.mu.Lock()
	defer a.failures.mu.Unlock()
	return max(len(a.failures.byAddress.byKey), len(a.failures.proven))
}

// MinDrop is the number of ended sessions from which expired ones are dropped.
const MinDrop = minDrop

// AddEnded records that a session has ended, and returns the number of ended sessions.
func (a *Auth) AddEnded(record string) int {
	a.rememberEnded(record)
	return len(a.ended.until)
}
