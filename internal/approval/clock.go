package approval

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A clock never goes back. When the clock that it reads is set back, it goes on
// at half speed until that one has caught up: leases, deadlines and the order of
// what is recorded stay right, and the two agree again in the end.
type clock struct {
	read func() time.Time
	log  *slog.Logger

	mu     sync.Mutex
	seen   time.Time // the last reading
	shown  time.Time // the time that was last returned
	behind bool      // the clock that is read is behind the time that was last returned
}

// noticeable is by how much a clock must be set back to be worth a line in the
// log. Less is what programs that keep clocks right do all the time.
const noticeable = time.Second

// now returns the time.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	reading := c.read()
	passed := max(0, reading.Sub(c.seen)) // by the monotonic clock, if there is one
	c.seen = reading
	least := c.shown.Add(passed / 2)
	late := least.Sub(reading.Round(0)) // by what the clock shows
	if late <= 0 {
		c.shown, c.behind = reading.Round(0), false
		return reading
	}
	c.shown = least
	if late > noticeable && !c.behind {
		c.behind = true
		c.log.WarnContext(context.Background(), "the clock was set back: the gate's own clock runs slower until it has caught up, or until a restart", "seconds", late.Seconds())
	}
	return least
}
