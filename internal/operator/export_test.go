package operator

// MaxLimiters is of how many addresses failures are remembered.
const MaxLimiters = maxLimiters

// Remembered returns of how many addresses something is remembered.
func (a *Auth) Remembered() int {
	a.guesses.mu.Lock()
	defer a.guesses.mu.Unlock()
	return max(len(a.guesses.bad.of), len(a.returns.of), len(a.guesses.proven))
}
