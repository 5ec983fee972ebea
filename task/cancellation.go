package task

// OwesCancellation reports whether the upstream must still be sent a cancellation of t.
func (t Task) OwesCancellation() bool {
	return t.Execution != nil && t.Execution.Cancellation != nil && t.Execution.Cancellation.SettledAt.IsZero()
}
