package mcptask

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Text is JSON in which an upstream's answer to a task has its place. The
// answer may be too large to be held, so it is put there while the text is
// written. The zero Text is an absent one.
type Text struct {
	before, after []byte
	of            task.ID             // whose answer it has a place for; empty if for none
	edit          *jsonrpc.MemberEdit // what is changed in the answer
}

// textOf returns a text without a place for an answer.
func textOf(whole json.RawMessage) Text { return Text{before: whole} }

// answerOf returns the text that is nothing but the answer to t.
func answerOf(t task.Task) Text { return Text{of: t.ID} }

// Present reports whether there is a text.
func (x Text) Present() bool { return x.before != nil || x.of != "" }

// Around returns x with more text before and after it.
func (x Text) Around(before, after string) Text {
	x.before = append([]byte(before), x.before...)
	x.after = append(bytes.Clone(x.after), after...)
	return x
}

// Compose writes x to w, with the answer, as [task.OpenResult] gives it, in its
// place. The answer is not looked at if there is no place for it. Nothing is
// written if the answer cannot be read, or is none; then, or if it breaks off,
// Compose returns an error.
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
		return &task.Error{Kind: task.KindChunkMissing, ID: x.of, Action: task.ActionReadChunk}
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

// Whole is [Text.Compose] for an answer that is small enough to be held.
func (x Text) Whole(answer []byte) (json.RawMessage, error) {
	var b bytes.Buffer
	if err := x.Compose(&b, bytes.NewReader(answer)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
