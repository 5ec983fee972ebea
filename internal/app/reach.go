package app

import (
	"context"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
)

// reachPauses are the pauses between attempts to reach an upstream after the
// start. The last one is repeated.
var reachPauses = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}

// reachTimeout bounds one attempt.
const reachTimeout = 5 * time.Second

// reachUpstreams connects to every upstream once, so that a wrong address shows in
// the log at the start and not with the first call.
func (a *App) reachUpstreams(ctx context.Context) {
	var all sync.WaitGroup
	for _, u := range a.upstreams {
		all.Go(func() { a.reach(ctx, u) })
	}
	all.Wait()
}

// reach warns once if an upstream cannot be reached, and tells when it can be.
func (a *App) reach(ctx context.Context, u *httpclient.Client) {
	for attempt := 0; ; attempt++ {
		trying, cancel := context.WithTimeout(ctx, reachTimeout)
		err := u.Reach(trying)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && attempt > 0:
			a.log.InfoContext(ctx, "upstream can be reached now", "upstream", u.Name(), "host", u.Host())
			return
		case err == nil:
			return
		case attempt == 0:
			a.log.WarnContext(ctx, "upstream cannot be reached; calls to it fail until it can", "upstream", u.Name(), "host", u.Host(), "cause", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reachPauses[min(attempt, len(reachPauses)-1)]):
		}
	}
}
