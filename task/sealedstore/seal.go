package sealedstore

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// The prefixes of sealed values. Requests never begin with the first prefix, because they are
// JSON. Answers never begin with the second prefix, because JSON never contains that byte. The
// prefix is followed by the name of the key and the same byte.
const (
	taskMark  = "sealed:1:"
	chunkMark = "\x00sealed1\x00"
)

// KeyOf returns the name of the key with which t, a stored task, is sealed. It is empty if
// t is not sealed.
func KeyOf(t task.Task) string {
	name, _ := splitSealed(taskMark, t.Call.Message)
	return name
}

// keyOfOutline is KeyOf for the outline of t.
func keyOfOutline(t *task.Task) string {
	name, _ := splitSealed(taskMark, t.Verdict.Facts)
	return name
}

// KeyOfChunk is [KeyOf] for a chunk of a blob.
func KeyOfChunk(data []byte) string {
	name, _ := splitSealed(chunkMark, data)
	return name
}

// Seal returns t in its stored form: the visible fields, and the whole task as sealed text.
// Without keys it returns t unchanged.
func (k Keys) Seal(t task.Task) (task.Task, error) {
	if k.Empty() {
		return t, nil
	}
	stored := visiblePart(&t)
	var err error
	if stored.Call.Message, err = k.sealTask(t, taskBinding("task", &t)); err != nil {
		return task.Task{}, err
	}
	stored.Verdict.Facts, err = k.sealTask(t.Outline(), taskBinding("outline", &t))
	return stored, err
}

// sealTask returns a task, or its outline, as sealed text.
func (k Keys) sealTask(t task.Task, p binding) (string, error) {
	text, err := storekit.Encode(t)
	if err != nil {
		return "", err
	}
	sealed, err := k.seal("", p, text)
	return k.prefix(taskMark) + base64.RawStdEncoding.EncodeToString(sealed), err
}

// Open opens t, a stored task. If there are keys, t must be sealed: otherwise a person who
// can write to the database, but has no key, could insert an approved task.
func (k Keys) Open(t task.Task) (task.Task, error) {
	//mutate:false TestKeyChangeTrustsOnlySealedTexts an unsealed task is read
	if KeyOf(t) == "" && !k.Empty() {
		return task.Task{}, &task.Error{Kind: task.ErrUnreadable, ID: t.ID, State: t.State, Err: ErrNotSealed}
	}
	return k.OpenAny(t)
}

// OpenAny is Open for callers that also accept tasks that are not sealed. It returns them
// unchanged.
func (k Keys) OpenAny(t task.Task) (task.Task, error) {
	if KeyOf(t) == "" {
		return t, nil
	}
	return k.openTask(&t, t.Call.Message, taskBinding("task", &t))
}

// openTask opens text, the sealed form of t or of its outline.
func (k Keys) openTask(t *task.Task, text string, p binding) (task.Task, error) {
	opened, err := k.decodeTask(text, p)
	if err == nil && (opened.State != t.State || opened.Digest != t.Digest || !opened.Due().Equal(t.Due())) {
		err = errors.New("the sealed task differs from its visible fields")
	}
	if err != nil {
		return task.Task{}, &task.Error{Kind: task.ErrUnreadable, ID: t.ID, State: t.State, Err: err}
	}
	return opened, nil
}

func (k Keys) decodeTask(text string, p binding) (task.Task, error) {
	name, encoded := splitSealed(taskMark, text)
	sealed, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil {
		return task.Task{}, fmt.Errorf("%w: not base64", ErrKey)
	}
	whole, err := k.open(name, p, sealed)
	if err != nil {
		return task.Task{}, err
	}
	return storekit.Decode(whole)
}

// taskKey names the key of one task and of its blob.
func taskKey(id task.ID) string { return "task 1 " + string(id) }

// taskBinding returns the binding of a sealed task, or of its outline.
func taskBinding(kind string, t *task.Task) binding {
	b := appendText(nil, kind)
	b = appendText(b, string(t.ID))
	b = appendText(b, t.Owner)
	return binding{keyName: taskKey(t.ID), data: binary.BigEndian.AppendUint64(b, uint64(t.Version))}
}

func chunkBinding(id task.ID, n int) binding {
	b := appendText(nil, "chunk")
	b = appendText(b, string(id))
	return binding{keyName: taskKey(id), data: binary.BigEndian.AppendUint64(b, uint64(n))}
}

func appendText(b []byte, text string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(text)))
	return append(b, text...)
}

// SealChunk returns chunk n of a task's blob in its stored form.
func (k Keys) SealChunk(id task.ID, n int, data []byte) ([]byte, error) {
	if k.Empty() {
		return data, nil
	}
	return k.seal(k.prefix(chunkMark), chunkBinding(id, n), data)
}

// OpenChunk opens data, a stored chunk. If there are keys, it must be sealed.
func (k Keys) OpenChunk(id task.ID, n int, data []byte) ([]byte, error) {
	//mutate:false TestKeyChangeTrustsOnlySealedTexts an unsealed answer is read
	if KeyOfChunk(data) == "" && !k.Empty() {
		return nil, &task.Error{Kind: task.ErrUnreadable, ID: id, Action: action.ReadChunk, Err: ErrNotSealed}
	}
	return k.OpenAnyChunk(id, n, data)
}

// OpenAnyChunk is OpenChunk for callers that also accept chunks that are not sealed.
func (k Keys) OpenAnyChunk(id task.ID, n int, data []byte) ([]byte, error) {
	name, sealed := splitSealed(chunkMark, data)
	if name == "" {
		return data, nil
	}
	opened, err := k.open(name, chunkBinding(id, n), sealed)
	if err != nil {
		return nil, &task.Error{Kind: task.ErrUnreadable, ID: id, Action: action.ReadChunk, Detail: fmt.Sprintf("chunk %d", n), Err: err}
	}
	return opened, nil
}

// visiblePart returns the fields of t that are stored in the clear for databases and
// operators: owner, state, times, and whether a cancellation is owed. Fields that are not
// listed here stay hidden.
func visiblePart(t *task.Task) task.Task {
	o := task.Task{
		ID: t.ID, Version: t.Version, State: t.State, Owner: t.Owner, Digest: t.Digest,
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, ExpiresAt: t.ExpiresAt,
		PollInterval: t.PollInterval,
		HeldCall:     gatetask.HeldCall{Group: t.Group, Workflow: t.Workflow, ContactAt: t.ContactAt, DeliveredAt: t.DeliveredAt},
		Call:         task.Call{Upstream: t.Call.Upstream, Method: t.Call.Method},
	}
	if !strings.HasPrefix(t.Call.Method, "resources/") { // their name is the requested URI
		o.Call.Name = t.Call.Name
	}
	for _, step := range t.Transitions {
		o.Transitions = append(o.Transitions, task.Transition{From: step.From, To: step.To, At: step.At, By: step.By})
	}
	if a := t.Approval; a != nil {
		o.Approval = &gatetask.Approval{Quorum: a.Quorum, SelfApproval: a.SelfApproval, Passkey: a.Passkey, Deadline: a.Deadline}
	}
	if t.State == task.Executing { // Due depends on fields that stay hidden
		o.ExpiresAt = t.Due()
	}
	if t.OwesCancellation() { // for the query of owed cancellations
		owed := t.Execution.Cancellation
		o.Execution = &task.Execution{Cancellation: &gatetask.Cancellation{Tries: owed.Tries, NextTry: owed.NextTry, Until: owed.Until}}
	}
	if f := t.Failure; f != nil {
		o.Failure = &task.Failure{Stage: f.Stage, Ran: f.Ran, Retriable: f.Retriable}
	}
	if r := t.Result; r != nil {
		o.Result = &task.Result{Kind: r.Kind, Size: r.Size, Chunks: r.Chunks}
	}
	return o
}
