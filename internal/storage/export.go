package storage

import (
	"context"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
)

// exportVersion is the version of the format of exports.
const exportVersion = 1

// A record is a line of an export. It has one of its members: the first line a
// header, the last an end, and a task comes before its chunks.
type record struct {
	Header *header        `json:"thoughtgate,omitzero"`
	Task   jsontext.Value `json:"task,omitzero"` // as [task.Encode] makes it
	Chunk  *chunk         `json:"chunk,omitzero"`
	Entry  *task.Entry    `json:"entry,omitzero"`
	End    *Moved         `json:"end,omitzero"`
}

type header struct {
	Export int       `json:"export"` // the version of the format
	Anchor task.Link `json:"anchor"` // of the journal: what the first entry follows
}

type chunk struct {
	Task task.ID `json:"task"`
	N    int     `json:"n"`
	Data []byte  `json:"data"`
}

// Moved counts what an export has, or an import has taken from one.
type Moved struct {
	Tasks   int `json:"tasks"`
	Chunks  int `json:"chunks"`
	Entries int `json:"entries"` // of the journal
}

// An exporter writes the lines of an export.
type exporter struct {
	from  task.GateStore
	open  func(task.Task) (task.Task, error)
	out   *jsontext.Encoder
	moved Moved
}

// Export writes everything that is in a store as lines of JSON.
// Encrypted values stay encrypted, unless form says otherwise. A little of the store is
// in memory at a time. Nobody should change the store meanwhile.
func Export(ctx context.Context, s *sealedstore.Store, w io.Writer, form Form) (Moved, error) {
	e := exporter{from: s.Unwrap(), open: func(t task.Task) (task.Task, error) { return t, nil }, out: jsontext.NewEncoder(w)}
	if form == Plain {
		e.from, e.open = s, s.Keys().Open
	}
	ends, err := s.Ends(ctx)
	if err == nil {
		err = e.write(record{Header: &header{Export: exportVersion, Anchor: ends.Anchor}})
	}
	if err == nil {
		err = e.tasks(ctx, s.Unwrap())
	}
	if err == nil {
		err = e.journal(ctx, s)
	}
	if err == nil {
		err = e.write(record{End: &e.moved})
	}
	return e.moved, err
}

// A Form says how an export shows what is encrypted.
type Form int

// The forms of an export.
const (
	AsStored Form = iota // what is encrypted stays encrypted
	Plain                // everything can be read
)

func (e *exporter) write(r record) error { return json.MarshalEncode(e.out, &r) }

// tasks writes all tasks, each followed by its blob. They are listed as they
// are stored: a list of what can be decrypted would leave out the rest.
func (e *exporter) tasks(ctx context.Context, stored task.Store) error {
	q := task.Query{Scope: task.AnyOwner(), Limit: 20}
	for t, err := range task.Each(ctx, stored, q) {
		if err == nil {
			err = e.task(ctx, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// journal writes all entries of the journal.
func (e *exporter) journal(ctx context.Context, from task.Journal) error {
	for entry, err := range task.EachEntry(ctx, from, task.JournalQuery{}) {
		if err == nil {
			e.moved.Entries++
			err = e.write(record{Entry: &entry})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *exporter) task(ctx context.Context, stored task.Task) error {
	t, err := e.open(stored)
	if err != nil {
		return err
	}
	document, err := task.Encode(t)
	if err != nil {
		return fmt.Errorf("task %s: %w", t.ID, err)
	}
	if err := e.write(record{Task: document}); err != nil {
		return err
	}
	e.moved.Tasks++
	for n := 0; t.Result != nil && n < t.Result.Chunks; n++ {
		data, err := e.from.ReadChunk(ctx, task.AnyOwner().Ref(t.ID), n)
		if err != nil {
			return err
		}
		if err := e.write(record{Chunk: &chunk{Task: t.ID, N: n, Data: data}}); err != nil {
			return err
		}
		e.moved.Chunks++
	}
	return nil
}
