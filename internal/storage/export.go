package storage

import (
	"context"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// exportVersion is the version of the format of exports.
const exportVersion = 1

// A record is a line of an export. It has exactly one member. The first line is a header,
// the last line is an end, and the chunks of a task follow the task.
type record struct {
	Header *header         `json:"thoughtgate,omitzero"`
	Task   jsontext.Value  `json:"task,omitzero"` // encoded by [storekit.Encode]
	Chunk  *chunk          `json:"chunk,omitzero"`
	Entry  *auditlog.Entry `json:"entry,omitzero"`
	End    *Counts         `json:"end,omitzero"`
}

type header struct {
	Export int           `json:"export"` // the version of the format
	Anchor auditlog.Link `json:"anchor"` // the link before the first entry of the journal
}

type chunk struct {
	Task task.ID `json:"task"`
	N    int     `json:"n"`
	Data []byte  `json:"data"`
}

// Counts are the numbers of exported or imported items.
type Counts struct {
	Tasks   int `json:"tasks"`
	Chunks  int `json:"chunks"`
	Entries int `json:"entries"` // of the journal
}

// An exporter writes the lines of an export.
type exporter struct {
	from   gatestore.Store
	open   func(task.Task) (task.Task, error)
	out    *jsontext.Encoder
	counts Counts
}

// Export writes all tasks, results and journal entries of a store as lines of JSON. It
// streams, so that memory does not grow with the store. Stop the gate first: the store must
// not change meanwhile.
func Export(ctx context.Context, s *sealedstore.Store, w io.Writer, form Form) (Counts, error) {
	e := exporter{from: s.Unwrap(), open: func(t task.Task) (task.Task, error) { return t, nil }, out: jsontext.NewEncoder(w)}
	if form == Decrypted {
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
		err = e.write(record{End: &e.counts})
	}
	return e.counts, err
}

// A Form is how an export contains encrypted values.
type Form int

// The forms of an export.
const (
	AsStored  Form = iota // encrypted values stay encrypted
	Decrypted             // all values are decrypted
)

func (e *exporter) write(r record) error { return json.MarshalEncode(e.out, &r) }

// tasks writes all tasks, each followed by its chunks. It lists the tasks as they are
// stored, because a list of decrypted tasks leaves out unreadable ones.
func (e *exporter) tasks(ctx context.Context, stored task.Store) error {
	q := task.Query{Scope: task.AnyOwner(), Limit: 20}
	for t, err := range storekit.Each(ctx, stored, q) {
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
func (e *exporter) journal(ctx context.Context, from auditlog.Journal) error {
	for entry, err := range auditlog.Each(ctx, from, auditlog.Query{}) {
		if err == nil {
			e.counts.Entries++
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
	document, err := storekit.Encode(t)
	if err != nil {
		return fmt.Errorf("task %s: %w", t.ID, err)
	}
	if err := e.write(record{Task: document}); err != nil {
		return err
	}
	e.counts.Tasks++
	for n := 0; t.Result != nil && n < t.Result.Chunks; n++ {
		data, err := e.from.ReadChunk(ctx, task.AnyOwner().Ref(t.ID), n)
		if err != nil {
			return err
		}
		if err := e.write(record{Chunk: &chunk{Task: t.ID, N: n, Data: data}}); err != nil {
			return err
		}
		e.counts.Chunks++
	}
	return nil
}
