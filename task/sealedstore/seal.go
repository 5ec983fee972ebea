package sealedstore

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// Prefixes of sealed values. No plain request begins with the first prefix,
// because requests are JSON; no plain answer begins with the second, because
// JSON never contains that byte. The name of the key follows the prefix and ends
// with the same byte.
const (
	taskMark  = "sealed:1:"
	taskEnd   = ":"
	chunkMark = "\x00sealed1\x00"
	chunkEnd  = "\x00"
)

// KeyOf returns the name of the key that t is sealed with, as it is stored, or
// nothing if it is not sealed.
func KeyOf(t task.Task) string { return keyIn(t.Call.Message) }

// keyIn returns the name of the key that text is sealed with, or nothing.
func keyIn(text string) string {
	rest, sealed := strings.CutPrefix(text, taskMark)
	if !sealed {
		return ""
	}
	name, _, _ := strings.Cut(rest, taskEnd)
	return name
}

// KeyOfChunk is [KeyOf] for a chunk of a blob.
func KeyOfChunk(data []byte) string {
	rest, sealed := bytes.CutPrefix(data, []byte(chunkMark))
	if !sealed {
		return ""
	}
	name, _, _ := bytes.Cut(rest, []byte(chunkEnd))
	return string(name)
}

// Seal returns t as it is stored: what a database has to know of it, and all of
// it sealed. Without keys that is t itself.
func (k Keys) Seal(t task.Task) (task.Task, error) {
	if k.Empty() {
		return t, nil
	}
	first := k.all[0]
	whole, err := task.Encode(t)
	if err != nil {
		return task.Task{}, err
	}
	aead, err := first.aead(taskKey(t.ID))
	if err != nil {
		return task.Task{}, err
	}
	part, err := task.Encode(t.Outline())
	if err != nil {
		return task.Task{}, err
	}
	seal := func(text, belongsTo []byte) string {
		sealed := aead.Seal(nil, nil, text, belongsTo) //nolint:gosec // it makes a random nonce
		return taskMark + first.name + taskEnd + base64.RawStdEncoding.EncodeToString(sealed)
	}
	stored := outline(&t)
	stored.Call.Message = seal(whole, taskContext("task", &t))
	stored.Verdict.Facts = seal(part, taskContext("outline", &t))
	return stored, nil
}

// openOutline returns the outline that is sealed in t, as it is stored, and
// whether there is one.
func (k Keys) openOutline(t *task.Task) (outline task.Task, sealed bool, err error) {
	name := keyIn(t.Verdict.Facts)
	if name == "" {
		return task.Task{}, false, nil
	}
	outline, err = k.open(t, t.Verdict.Facts, taskContext("outline", t))
	if err != nil {
		err = &task.Error{Kind: task.KindUnreadable, ID: t.ID, State: t.State, Err: err}
	}
	return outline, true, err
}

// Open returns the task that t, as it is stored, stands for. One that is not
// sealed stands for itself.
func (k Keys) Open(t task.Task) (task.Task, error) {
	if KeyOf(t) == "" {
		return t, nil
	}
	opened, err := k.open(&t, t.Call.Message, taskContext("task", &t))
	if err != nil {
		return task.Task{}, &task.Error{Kind: task.KindUnreadable, ID: t.ID, State: t.State, Err: err}
	}
	return opened, nil
}

// open returns the task that is sealed in text, which belongs to t.
func (k Keys) open(t *task.Task, text string, belongsTo []byte) (task.Task, error) {
	name := keyIn(text)
	known, err := k.needed(name)
	if err != nil {
		return task.Task{}, err
	}
	aead, err := known.aead(taskKey(t.ID))
	if err != nil {
		return task.Task{}, err
	}
	sealed, err := base64.RawStdEncoding.DecodeString(text[len(taskMark)+len(name)+len(taskEnd):])
	if err != nil {
		return task.Task{}, fmt.Errorf("%w: not base64", ErrKey)
	}
	whole, err := aead.Open(nil, nil, sealed, belongsTo)
	if err != nil {
		return task.Task{}, fmt.Errorf("%w: wrong key %s, or the task was changed", ErrKey, name)
	}
	opened, err := task.Decode(whole)
	if err == nil && (opened.State != t.State || opened.Digest != t.Digest || !opened.Due().Equal(t.Due())) {
		err = errors.New("what is sealed and what is beside it differ")
	}
	return opened, err
}

// taskKey names the key of one task and of its blob.
func taskKey(id task.ID) string { return "task 1 " + string(id) }

// taskContext is what a sealed task, or its outline, belongs to: it opens nowhere
// else.
func taskContext(kind string, t *task.Task) []byte {
	b := appendText(nil, kind)
	b = appendText(b, string(t.ID))
	b = appendText(b, t.Owner)
	return binary.BigEndian.AppendUint64(b, uint64(t.Version)) //nolint:gosec // only the bits matter
}

func chunkContext(id task.ID, n int) []byte {
	b := appendText(nil, "chunk")
	b = appendText(b, string(id))
	return binary.BigEndian.AppendUint64(b, uint64(n)) //nolint:gosec // only the bits matter
}

func appendText(b []byte, text string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(text)))
	return append(b, text...)
}

// SealChunk returns chunk n of a task's blob as it is stored.
func (k Keys) SealChunk(id task.ID, n int, data []byte) ([]byte, error) {
	if k.Empty() {
		return data, nil
	}
	first := k.all[0]
	aead, err := first.aead(taskKey(id))
	if err != nil {
		return nil, err
	}
	return aead.Seal([]byte(chunkMark+first.name+chunkEnd), nil, data, chunkContext(id, n)), nil //nolint:gosec // it makes a random nonce
}

// OpenChunk returns the chunk that data, as it is stored, stands for.
func (k Keys) OpenChunk(id task.ID, n int, data []byte) ([]byte, error) {
	rest, sealed := bytes.CutPrefix(data, []byte(chunkMark))
	if !sealed {
		return data, nil
	}
	opened, err := k.openChunk(id, n, rest)
	if err != nil {
		return nil, &task.Error{Kind: task.KindUnreadable, ID: id, Action: task.ActionReadChunk, Err: err}
	}
	return opened, nil
}

func (k Keys) openChunk(id task.ID, n int, rest []byte) ([]byte, error) {
	name, sealed, _ := bytes.Cut(rest, []byte(chunkEnd))
	known, err := k.needed(string(name))
	if err != nil {
		return nil, err
	}
	aead, err := known.aead(taskKey(id))
	if err != nil {
		return nil, err
	}
	data, err := aead.Open(nil, nil, sealed, chunkContext(id, n))
	if err != nil {
		return nil, fmt.Errorf("%w: wrong key %s, or chunk %d was changed", ErrKey, name, n)
	}
	return data, nil
}

// outline returns what databases and those who look after them have to know of
// t: whose it is, how it stands, when it is due and whether its upstream is owed
// something. Fields that are not named
// here are not shown.
func outline(t *task.Task) task.Task {
	o := task.Task{
		ID: t.ID, Version: t.Version, State: t.State, Owner: t.Owner, Digest: t.Digest,
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, ExpiresAt: t.ExpiresAt,
		PollInterval: t.PollInterval,
		HeldCall:     task.HeldCall{Room: t.Room, Workflow: t.Workflow, ContactAt: t.ContactAt, DeliveredAt: t.DeliveredAt},
		Call:         task.Call{Upstream: t.Call.Upstream, Method: t.Call.Method},
	}
	if !strings.HasPrefix(t.Call.Method, "resources/") { // whose names are what is asked for
		o.Call.Name = t.Call.Name
	}
	for _, step := range t.Transitions {
		o.Transitions = append(o.Transitions, task.Transition{From: step.From, To: step.To, At: step.At, By: step.By})
	}
	if a := t.Approval; a != nil {
		o.Approval = &task.Approval{Quorum: a.Quorum, SelfApproval: a.SelfApproval, Deadline: a.Deadline}
	}
	if t.State == task.Executing { // when it is due depends on much that is nobody's business
		o.ExpiresAt = t.Due()
	}
	if t.Owes() { // by which they are found
		owed := t.Execution.Cancellation
		o.Execution = &task.Execution{Cancellation: &task.Cancellation{Tries: owed.Tries, NextTry: owed.NextTry, Until: owed.Until}}
	}
	if f := t.Failure; f != nil {
		o.Failure = &task.Failure{Stage: f.Stage, Ran: f.Ran, Retriable: f.Retriable}
	}
	if r := t.Result; r != nil {
		o.Result = &task.Result{Kind: r.Kind, Size: r.Size, Chunks: r.Chunks}
	}
	return o
}
