package operator

// MaxLimiters is of how many addresses failures are remembered.
const MaxLimiters = maxLimiters

// MaxRedeeming is how many codes are redeemed at a time.
const MaxRedeeming = maxRedeeming

// MaxReturns is how many returns from the provider are remembered.
const MaxReturns = maxReturns

// Returns returns how many returns from the provider are remembered.
func (a *Auth) Returns() int {
	a.returns.mu.Lock()
	defer a.returns.mu.Unlock()
	return len(a.returns.until)
}

// Remembered returns of how many addresses something is remembered.
func (a *Auth) Remembered() int {
	a.guesses.mu.Lock()
	defer a.guesses.mu.Unlock()
	return max(len(a.guesses.bad.of), len(a.guesses.proven))
}

// MinSweep is how many ended sessions are remembered before any is forgotten.
const MinSweep = minSweep

// Ended notes that a session has ended, and returns how many such are remembered.
func (a *Auth) Ended(record string) int {
	a.noteEnd(record)
	return len(a.ended.until)
}
