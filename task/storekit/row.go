package storekit

import (
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// A Row is a task in its stored form, with the notes on its change. NewRow encodes everything that
// the caller may change, because the row is written later.
type Row struct {
	task.Task

	Document    string
	OutlineText string
	Notes       []StoredNote
}

// NewRow returns the row of a task, with the notes on its change.
func NewRow(t task.Task, notes []task.Note, a action.Name) (Row, error) {
	document, err := Encode(t)
	if err != nil {
		return Row{}, &task.Error{Kind: task.ErrInvalid, ID: t.ID, Action: a, Err: err}
	}
	outline, err := Encode(t.Outline())
	if err != nil {
		return Row{}, &task.Error{Kind: task.ErrInvalid, ID: t.ID, Action: a, Err: err}
	}
	remarks, err := NewStoredNotes(notes, a)
	return Row{Task: t, Document: string(document), OutlineText: string(outline), Notes: remarks}, err
}

// Size returns about how many bytes are written.
func (r *Row) Size() int { return len(r.Document) + len(r.OutlineText) + SizeOf(r.Notes) }

// Pending reports whether the task is pending.
func (r *Row) Pending() bool { return !r.State.Terminal() }

// A StoredNote is a note and its stored form.
type StoredNote struct {
	task.Note

	Document string
}

// NewStoredNotes returns notes with their stored form.
func NewStoredNotes(notes []task.Note, a action.Name) ([]StoredNote, error) {
	notes, err := auditlog.Prepare(notes, a)
	if err != nil || len(notes) == 0 {
		return nil, err
	}
	remarks := make([]StoredNote, len(notes))
	for i, n := range notes {
		document, err := auditlog.Encode(n)
		if err != nil {
			return nil, &task.Error{Kind: task.ErrInvalid, ID: n.Task, Action: a, Err: err}
		}
		remarks[i] = StoredNote{n, string(document)}
	}
	return remarks, nil
}

// Documents returns the stored form of notes.
func Documents(remarks []StoredNote) []string {
	texts := make([]string, len(remarks))
	for i := range remarks {
		texts[i] = remarks[i].Document
	}
	return texts
}

// SizeOf returns the size of the stored form of notes in bytes.
func SizeOf(remarks []StoredNote) int {
	size := 0
	for i := range remarks {
		size += len(remarks[i].Document)
	}
	return size
}
