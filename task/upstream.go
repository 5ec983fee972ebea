package task

import (
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func (e Progress) apply(t *Task, now time.Time) *Error {
	x := t.Execution.clone()
	if refused := t.runBy(e.By); refused != nil {
		if e.By != "" || !now.After(x.LeaseUntil) {
			return refused
		}
		x.Executor, x.LeaseUntil = "", time.Time{} // whoever it was is dead
	}
	asked, refused := e.check(x)
	if refused != nil {
		return refused
	}
	x.UpstreamTask, x.Upstream, x.Message, x.PollInterval = e.UpstreamTask, e.Upstream, e.Message, e.PollInterval.Truncate(time.Microsecond)
	x.RequestState = e.RequestState
	x.ask(asked)
	if e.Release {
		x.Executor, x.LeaseUntil = "", time.Time{}
	}
	if x.UpstreamTask == "" && x.Upstream != UpstreamAsks && x.Answers == nil && x.Detached() {
		return &Error{Kind: KindInvalid, Detail: "nobody would know what becomes of the call"}
	}
	t.Execution = x
	return nil
}

func (e Describe) apply(t *Task, _ time.Time) *Error {
	if refused := t.runBy(e.By); refused != nil {
		return refused
	}
	if !utf8.ValidString(e.Message) {
		return &Error{Kind: KindInvalid, Detail: "the message is no valid UTF-8"}
	}
	t.Execution = t.Execution.clone()
	t.Execution.Message = e.Message
	return nil
}

// ask notes what the upstream asks, which may be nothing.
func (x *Execution) ask(asked json.RawMessage) {
	x.InputRequests, x.Answers = asked, nil
	switch {
	case len(asked) > len("{}"):
		x.Upstream = UpstreamAsks
	case asked != nil && x.UpstreamTask == "" && x.Upstream == UpstreamAsks:
		// It wants no more than to be called again: all that it asks is answered.
		x.Upstream, x.InputRequests, x.Answers = UpstreamWorks, nil, asked
	}
}

// check returns the questions of e in one way to write them, or what is wrong
// with e as a note on x.
func (e Progress) check(x *Execution) (json.RawMessage, *Error) {
	switch {
	case x.UpstreamTask != "" && e.UpstreamTask != x.UpstreamTask:
		return nil, &Error{Kind: KindInvalid, Detail: "the upstream's task is another one already"}
	case !utf8.ValidString(e.UpstreamTask) || !utf8.ValidString(e.RequestState) || !utf8.ValidString(e.Message):
		return nil, &Error{Kind: KindInvalid, Detail: "what the upstream says is no valid UTF-8"}
	case e.PollInterval < 0:
		return nil, &Error{Kind: KindInvalid, Detail: "negative poll interval"}
	case e.InputRequests == nil:
		return nil, nil
	}
	asked, err := jsontext.AppendFormat(nil, e.InputRequests)
	if err != nil || asked[0] != '{' {
		return nil, &Error{Kind: KindInvalid, Detail: "input requests are not a JSON object", Err: err}
	}
	return asked, nil
}

func (e Answer) apply(t *Task, _ time.Time) *Error {
	x := t.Execution.clone()
	if x.UpstreamTask != "" || x.Upstream != UpstreamAsks {
		return &Error{Kind: KindInvalidTransition, Detail: "nothing is asked"}
	}
	open, err := members(x.InputRequests)
	given, failed := members(x.Answers)
	for key, response := range e.Responses {
		if _, asked := open[key]; asked {
			given[key] = response
			delete(open, key)
		}
	}
	var marshalled [2]error
	x.InputRequests, marshalled[0] = jsonv2.Marshal(open, jsonv2.Deterministic(true))
	x.Answers, marshalled[1] = jsonv2.Marshal(given, jsonv2.Deterministic(true))
	if err = errors.Join(err, failed, marshalled[0], marshalled[1]); err != nil {
		return &Error{Kind: KindInvalid, Detail: "the answers are no JSON", Err: err}
	}
	if len(open) == 0 {
		x.Upstream, x.InputRequests = UpstreamWorks, nil
	}
	t.Execution = x
	return nil
}

// members returns the members of a JSON object, which may be absent.
func members(object json.RawMessage) (map[string]json.RawMessage, error) {
	m := make(map[string]json.RawMessage)
	if len(object) == 0 {
		return m, nil
	}
	return m, jsonv2.Unmarshal(object, &m)
}

func (e Resume) apply(t *Task, now time.Time) *Error {
	x, lease := t.Execution.clone(), precise(e.LeaseUntil)
	switch {
	case e.By == "" || !utf8.ValidString(e.By) || !lease.After(now):
		return &Error{Kind: KindInvalid, Detail: "nobody would be at work on it"}
	case !x.Detached() && !now.After(x.LeaseUntil):
		return &Error{Kind: KindNotReady, Detail: "somebody is at it", RetryAfter: x.LeaseUntil.Sub(now)}
	case x.UpstreamTask == "" && !x.Answered():
		return &Error{Kind: KindInvalidTransition, Detail: "there is nothing to go on with"}
	}
	x.Executor, x.LeaseUntil = e.By, lease
	t.Execution = x
	return nil
}

func (e Restart) apply(t *Task, now time.Time) *Error {
	x, lease := t.Execution, precise(e.LeaseUntil)
	switch {
	case e.By == "" || !utf8.ValidString(e.By) || !lease.After(now):
		return &Error{Kind: KindInvalid, Detail: "nobody would be at work on it"}
	case x.UpstreamTask != "" || x.Detached():
		return &Error{Kind: KindInvalidTransition, Detail: "the run needs no executor"}
	case !now.After(x.LeaseUntil):
		return &Error{Kind: KindNotReady, Detail: "the executor may be alive", RetryAfter: x.LeaseUntil.Sub(now)}
	}
	t.Execution = &Execution{Executor: e.By, StartedAt: now, LeaseUntil: lease}
	return nil
}
