package mcptask

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// A Text is JSON with a placeholder for an upstream's answer. The answer may be too large
// for memory, so it is inserted while the text is written. The zero Text is absent.
type Text struct {
	before, after []byte
	of            task.ID             // the task whose answer is inserted; empty without a placeholder
	edit          *jsonrpc.MemberEdit // an edit of the answer
}

// textOf returns a text without a placeholder.
func textOf(whole json.RawMessage) Text { return Text{before: whole} }

// answerOf returns the text that consists of the answer to t.
func answerOf(t task.Task) Text { return Text{of: t.ID} }

// Present reports whether there is a text.
func (x Text) Present() bool { return x.before != nil || x.of != "" }

// Wrap returns x with more text before and after it.
func (x Text) Wrap(before, after string) Text {
	x.before = append([]byte(before), x.before...)
	x.after = append(bytes.Clone(x.after), after...)
	return x
}

// Compose writes x to w, with the answer of [storekit.OpenResult] instead of the
// placeholder. It reads the answer only if there is a placeholder. If the answer cannot be
// read or is not an object, Compose writes nothing and returns an error.
func (x Text) Compose(w io.Writer, answer io.Reader) error {
	if x.of == "" {
		_, err := w.Write(append(bytes.Clone(x.before), x.after...))
		return err
	}
	first := make([]byte, 512)
	n, err := io.ReadAtLeast(answer, first, 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n == 0 || first[0] != '{' {
		return &task.Error{Kind: task.ErrChunkMissing, ID: x.of, Action: action.ReadChunk}
	}
	if _, err := w.Write(x.before); err != nil {
		return err
	}
	answer = io.MultiReader(bytes.NewReader(first[:n]), answer)
	if x.edit != nil {
		err = x.edit.Copy(w, answer)
	} else {
		_, err = io.Copy(w, answer)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(x.after)
	return err
}

// ComposeBytes is [Text.Compose] for an answer in memory.
func (x Text) ComposeBytes(answer []byte) (json.RawMessage, error) {
	var b bytes.Buffer
	if err := x.Compose(&b, bytes.NewReader(answer)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
