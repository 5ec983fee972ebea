package lifecycle

import (
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

func (e Progress) apply(t *task.Task, now time.Time) *task.Error {
	x := t.Execution.Clone()
	if refused := runBy(t, e.By); refused != nil {
		//mutate:swap `e.By != "" || ` "" task.TestEarlierRunCannotChangeLaterOne an earlier run undoes what a later one did
		if e.By != "" || !now.After(x.LeaseUntil) {
			return refused
		}
		x.Executor, x.LeaseUntil = "", time.Time{} // its lease has lapsed
	}
	asked, refused := e.check(x)
	if refused != nil {
		return refused
	}
	x.UpstreamTask, x.Upstream, x.Message, x.PollInterval = e.UpstreamTask, e.Upstream, e.Message, e.PollInterval.Truncate(time.Microsecond)
	x.RequestState = e.RequestState
	ask(x, asked)
	//mutate:false internal/approval.TestUpstreamTaskNeedsNoWork a nested task has a lease that must be renewed
	if e.Release {
		x.Executor, x.LeaseUntil = "", time.Time{}
	}
	if x.UpstreamTask == "" && x.Upstream != gatetask.UpstreamAsks && x.Answers == nil && x.Detached() {
		return &task.Error{Kind: task.ErrInvalid, Detail: "the run needs an executor, an upstream task or questions"}
	}
	t.Execution = x
	return nil
}

func (e Describe) apply(t *task.Task, _ time.Time) *task.Error {
	if refused := runBy(t, e.By); refused != nil {
		return refused
	}
	if !utf8.ValidString(e.Message) {
		return &task.Error{Kind: task.ErrInvalid, Detail: "the message is not valid UTF-8"}
	}
	t.Execution = t.Execution.Clone()
	t.Execution.Message = e.Message
	return nil
}

// ask sets the questions of the upstream, which may be none.
func ask(x *task.Execution, asked json.RawMessage) {
	x.InputRequests, x.Answers = asked, nil
	switch {
	case len(asked) > len("{}"):
		x.Upstream = gatetask.UpstreamAsks
	case asked != nil && x.UpstreamTask == "" && x.Upstream == gatetask.UpstreamAsks:
		// An empty object asks only for another call.
		x.Upstream, x.InputRequests, x.Answers = gatetask.UpstreamWorks, nil, asked
	}
}

// check returns the questions of e as compact JSON, or an error if e is not legal for x.
func (e Progress) check(x *task.Execution) (json.RawMessage, *task.Error) {
	switch {
	case x.UpstreamTask != "" && e.UpstreamTask != x.UpstreamTask:
		return nil, &task.Error{Kind: task.ErrInvalid, Detail: "the run already has another upstream task"}
	case !utf8.ValidString(e.UpstreamTask) || !utf8.ValidString(e.RequestState) || !utf8.ValidString(e.Message):
		return nil, &task.Error{Kind: task.ErrInvalid, Detail: "task id, request state or message is not valid UTF-8"}
	case e.PollInterval < 0:
		return nil, &task.Error{Kind: task.ErrInvalid, Detail: "negative poll interval"}
	case e.InputRequests == nil:
		return nil, nil
	}
	asked, err := jsontext.AppendFormat(nil, e.InputRequests)
	if err != nil || asked[0] != '{' {
		return nil, &task.Error{Kind: task.ErrInvalid, Detail: "input requests are not a JSON object", Err: err}
	}
	return asked, nil
}

func (e Ask) apply(t *task.Task, _ time.Time) *task.Error {
	if refused := runBy(t, e.By); refused != nil {
		return refused
	}
	x := t.Execution.Clone()
	asked, err := members(e.Questions)
	open, failed := members(x.InputRequests)
	answered, wrong := members(x.Answers)
	if err = errors.Join(err, failed, wrong); err != nil || x.UpstreamTask != "" {
		return &task.Error{Kind: task.ErrInvalid, Detail: "questions that are not a JSON object, or of an upstream task", Err: err}
	}
	for key, question := range asked {
		if _, known := answered[key]; !known {
			open[key] = question
		}
	}
	if x.InputRequests, err = jsonv2.Marshal(open, jsonv2.Deterministic(true)); err != nil {
		return &task.Error{Kind: task.ErrInvalid, Detail: "the questions are not JSON", Err: err}
	}
	if x.Upstream = gatetask.UpstreamAsks; len(open) == 0 {
		x.Upstream, x.InputRequests = gatetask.UpstreamWorks, nil
	}
	t.Execution = x
	return nil
}

func (e Answer) apply(t *task.Task, now time.Time) *task.Error {
	x := t.Execution.Clone()
	if x.UpstreamTask != "" || x.Upstream != gatetask.UpstreamAsks {
		return &task.Error{Kind: task.ErrInvalidTransition, Detail: "the task has no open questions"}
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
		return &task.Error{Kind: task.ErrInvalid, Detail: "the answers are not JSON", Err: err}
	}
	if len(open) == 0 {
		x.Upstream, x.InputRequests = gatetask.UpstreamWorks, nil
	}
	t.Execution = x
	if e.By == "" || !x.Answered() {
		return nil
	}
	return Resume{By: e.By, LeaseUntil: e.LeaseUntil}.apply(t, now)
}

// members returns the members of a JSON object. An absent object has none.
func members(object json.RawMessage) (map[string]json.RawMessage, error) {
	m := make(map[string]json.RawMessage)
	if len(object) == 0 {
		return m, nil
	}
	return m, jsonv2.Unmarshal(object, &m)
}

func (e Resume) apply(t *task.Task, now time.Time) *task.Error {
	x, lease := t.Execution.Clone(), precise(e.LeaseUntil)
	switch {
	case e.By == "" || !utf8.ValidString(e.By) || !lease.After(now):
		return &task.Error{Kind: task.ErrInvalid, Detail: "the executor needs a name and a lease"}
	case !x.Detached() && !now.After(x.LeaseUntil):
		return &task.Error{Kind: task.ErrNotReady, Detail: "another process is the executor", RetryAfter: x.LeaseUntil.Sub(now)}
	case x.UpstreamTask == "" && !x.Answered():
		return &task.Error{Kind: task.ErrInvalidTransition, Detail: "the run has neither an upstream task nor answers"}
	}
	x.Executor, x.LeaseUntil = e.By, lease
	t.Execution = x
	return nil
}

func (e Restart) apply(t *task.Task, now time.Time) *task.Error {
	x, lease := t.Execution, precise(e.LeaseUntil)
	switch {
	case e.By == "" || !utf8.ValidString(e.By) || !lease.After(now):
		return &task.Error{Kind: task.ErrInvalid, Detail: "the executor needs a name and a lease"}
	case x.UpstreamTask != "" || x.Detached():
		return &task.Error{Kind: task.ErrInvalidTransition, Detail: "the run needs no executor"}
	case !e.Dead && !now.After(x.LeaseUntil):
		return &task.Error{Kind: task.ErrNotReady, Detail: "the executor may be alive", RetryAfter: x.LeaseUntil.Sub(now)}
	}
	x = x.Clone()
	x.Executor, x.StartedAt, x.LeaseUntil, x.Message = e.By, now, lease, ""
	t.Execution = x
	return nil
}
