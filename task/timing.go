package task

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// Polling bounds how often clients are asked to poll. A zero field means its
// default.
type Polling struct {
	Min time.Duration // 500 ms
	Max time.Duration // 30 s
}

// Interval returns how often to poll while remaining is left of the time to
// live: more often near the end, so that the client still sees a late decision in time.
func (p Polling) Interval(remaining time.Duration) time.Duration {
	return p.Clamp(pollInterval(remaining.Truncate(time.Second)))
}

// Clamp returns the interval within the bounds that is nearest to the given
// one. If Min is greater than Max, Max wins.
func (p Polling) Clamp(interval time.Duration) time.Duration {
	if p.Min == 0 {
		p.Min = 500 * time.Millisecond
	}
	if p.Max == 0 {
		p.Max = 30 * time.Second
	}
	return min(p.Max, max(p.Min, interval))
}

// ByAge returns how often to poll a task of the given age: a tenth of its age. Clients learn of the end of a short task soon, and rarely poll a long
// one.
func (p Polling) ByAge(age time.Duration) time.Duration {
	return p.Clamp((age / 10).Truncate(100 * time.Millisecond))
}

func pollInterval(remaining time.Duration) time.Duration {
	switch {
	case remaining <= time.Minute:
		return 2 * time.Second
	case remaining <= 5*time.Minute:
		return 5 * time.Second
	case remaining <= 15*time.Minute:
		return 10 * time.Second
	default:
		return 30 * time.Second
	}
}

// TTLRules determine how long a task lives.
type TTLRules struct {
	Approval  time.Duration // how long the workflow gives the approvers
	Execution time.Duration // how long the call may run
	Retrieval time.Duration // how long the outcome is kept for its owner; 0 means 10 minutes
	Max       time.Duration // no task lives longer; 0 means 24 hours
}

// A TTL is a time to live, and how it differs from the requested one.
type TTL struct {
	Value   time.Duration
	Raised  bool // the owner asked for less than approval, execution and retrieval may take
	Clamped bool // it would have been more than the maximum
}

// Resolve returns the time to live of a task whose owner requested asked; zero
// means no request. See [ParseTTL].
func (r TTLRules) Resolve(asked time.Duration) TTL {
	if r.Retrieval == 0 {
		r.Retrieval = 10 * time.Minute
	}
	longest := r.Longest()
	least := r.Approval + r.Execution + r.Retrieval
	ttl := TTL{Value: asked}
	if asked < least {
		ttl.Value, ttl.Raised = least, asked != 0
	}
	if ttl.Value > longest {
		ttl.Value, ttl.Clamped = longest, true
	}
	return ttl
}

// Longest returns how long a task may live at most.
func (r TTLRules) Longest() time.Duration {
	if r.Max == 0 {
		return 24 * time.Hour
	}
	return r.Max
}

// ParseTTL reads a time to live as a client sends it: a positive whole number
// of milliseconds. It returns zero if there is none, or null, and
// [ErrInvalidTTL] for anything else. A number that is too large for a
// time.Duration becomes the longest one, for [TTLRules.Resolve] to clamp.
func ParseTTL(text json.RawMessage) (time.Duration, error) {
	if len(text) == 0 || string(text) == "null" {
		return 0, nil
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	ms, err := strconv.ParseFloat(string(text), 64)
	if number := jsontext.Value(text); !number.IsValid() || number.Kind() != jsontext.KindNumber || err != nil && !math.IsInf(ms, 1) || ms <= 0 || ms != math.Trunc(ms) {
		return 0, &Error{
			Kind: ErrInvalidTTL, Action: action.Create, Suggest: suggestions[ErrInvalidTTL],
			Detail: "not a positive whole number of milliseconds",
		}
	}
	if ms > float64(most) {
		return math.MaxInt64, nil
	}
	return time.Duration(ms) * time.Millisecond, nil
}
