package gatetask

// An UpstreamState is the state of a call at the upstream.
type UpstreamState string

// The states of an upstream.
const (
	UpstreamWorks  UpstreamState = ""       // it works on the call, as far as is known
	UpstreamAsks   UpstreamState = "asks"   // it waits for answers of the client
	UpstreamReady  UpstreamState = "ready"  // it has a result that was not fetched
	UpstreamFailed UpstreamState = "failed" // it has an error that was not fetched
)

// Ended reports whether the upstream has finished the call.
func (s UpstreamState) Ended() bool { return s == UpstreamReady || s == UpstreamFailed }

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
