package approval

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// ending returns how the run of t ends: with the answer, which it keeps, or
// with what is known of a call without one.
func (d *Desk) ending(ctx context.Context, t task.Task, o Outcome, failed error) task.Event {
	if failed == nil && o.Body == nil {
		failed = &SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown, Err: errors.New("no answer")}
	}
	if failed != nil {
		return d.failure(ctx, t, failed)
	}
	body, look := &source{Reader: o.Body}, &lookout{}
	kept, err := task.WriteResult(ctx, d.cfg.Store, task.AnyOwner().Ref(t.ID), io.TeeReader(body, look))
	switch {
	case body.err != nil:
		return d.failure(ctx, t, body.err)
	case err != nil:
		return d.failure(ctx, t, &SendError{Stage: task.StageExecutorLost, Ran: task.RanYes, Err: err})
	case !look.object() || kept.Chunks == 0 && !isJSON(kept.Inline):
		err := errors.New("the answer is no JSON object")
		return d.failure(ctx, t, &SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanYes, Err: err})
	case o.Error:
		kept.Kind = task.ResultRPCError
		const reason = "the upstream answered with an error"
		return task.Fail{
			By: d.cfg.Name, Result: &kept,
			Failure: task.Failure{Stage: task.StageUpstreamError, Reason: reason, Ran: task.RanYes},
		}
	case look.isError:
		kept.Kind = task.ResultToolError
	default:
		kept.Kind = task.ResultOK
	}
	return task.Complete{By: d.cfg.Name, Result: kept}
}

// isJSON reports whether text is JSON. How strictly it is written is between
// the upstream and its client.
func isJSON(text jsontext.Value) bool {
	return text.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// failure returns the end of a call that has no answer. What went wrong is for
// the log; the trail has a fixed sentence.
func (d *Desk) failure(ctx context.Context, t task.Task, err error) task.Event {
	d.cfg.Log.WarnContext(ctx, "call without an answer", "task", t.ID, "tool", t.Call.Name, "error", err)
	f := task.Failure{Stage: task.StageUpstreamUnreachable, Reason: "the call could not be finished", Ran: task.RanUnknown}
	known, ok := errors.AsType[*SendError](err)
	switch {
	case ok && known.Stage != "":
		f.Stage = known.Stage
		if known.Ran != "" {
			f.Ran = known.Ran
		}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		f.Stage = task.StageUpstreamTimeout
	case ctx.Err() != nil:
		f.Stage = task.StageExecutorLost // only a shutdown interrupts a run that others have not ended
	}
	f.Retriable = f.Ran == task.RanNo
	return task.Fail{By: d.cfg.Name, Failure: f}
}

// A source remembers why its reader failed, to tell that from a store's failure.
type source struct {
	io.Reader

	err error
}

// Read implements [io.Reader].
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// A lookout sees an answer of any size pass by and finds out, in constant
// memory, whether it is an object and what its member isError says. It relies
// on the answer being JSON for everything but that.
type lookout struct {
	started, ended, broken bool
	depth                  int
	quoted, escaped        bool
	key                    bool   // the next string at depth 1 is a name
	word                   []byte // the name or literal at depth 1, as far as it can matter
	name                   string
	isError                bool
}

// maxWord is enough for isError with every character escaped.
const maxWord = 2 + 6*len("isError")

// object reports whether all that passed by was one JSON object.
func (l *lookout) object() bool { return l.ended && !l.broken }

// Write implements [io.Writer].
func (l *lookout) Write(p []byte) (int, error) {
	for _, c := range p {
		if l.quoted {
			l.inString(c)
		} else {
			l.outside(c)
		}
	}
	return len(p), nil
}

func (l *lookout) inString(c byte) {
	l.note(c)
	switch {
	case l.escaped:
		l.escaped = false
	case c == '\\':
		l.escaped = true
	case c == '"':
		l.quoted = false
		if l.depth == 1 && l.key {
			l.name = unquoted(l.word)
		}
	}
}

func (l *lookout) outside(c byte) {
	if strings.IndexByte(" \t\n\r", c) >= 0 {
		return
	}
	if l.ended || !l.started && c != '{' {
		l.broken = true
		return
	}
	l.started = true
	switch c {
	case '{', '[':
		l.depth++
		l.expect(true)
	case '}', ']':
		l.value()
		l.depth--
		l.ended = l.depth == 0
	case ',':
		l.value()
		l.expect(true)
	case ':':
		l.expect(false)
	default:
		l.quoted = c == '"'
		l.note(c)
	}
}

// expect says whether a name comes next.
func (l *lookout) expect(name bool) {
	l.key, l.word = name, l.word[:0]
}

// value takes note of the member that has just ended.
func (l *lookout) value() {
	if l.name == "isError" && string(l.word) == "true" {
		l.isError = true
	}
}

func (l *lookout) note(c byte) {
	if l.depth == 1 && len(l.word) < maxWord {
		l.word = append(l.word, c)
	}
}

// unquoted returns the string that word, a JSON string, stands for.
func unquoted(word []byte) string {
	text, err := jsontext.AppendUnquote(nil, word)
	if err != nil {
		return "" // too long to matter
	}
	return string(text)
}
