package channel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A delivery is what the store keeps of a question on one channel.
type delivery struct {
	Sent     Stage     `json:"sent,omitzero"` // the stage that the channel was sent last
	Ref      string    `json:"ref,omitzero"`
	Via      string    `json:"via,omitzero"`      // a digest of the address at which it was asked
	Nudged   int       `json:"nudged,omitzero"`   // how many of the nudges the channel knows of
	Attempts int       `json:"attempts,omitzero"` // that failed since the last success
	Since    time.Time `json:"since,omitzero"`    // of the first of them
	Next     time.Time `json:"next,omitzero"`     // not before this
	Error    string    `json:"error,omitzero"`    // of the last of them
	Claim    string    `json:"claim,omitzero"`    // the replica that is sending, or whose message may have arrived
	Until    time.Time `json:"until,omitzero"`    // when its claim ends
}

// A letter is a delivery with its place in the store.
type letter struct {
	delivery

	id      task.ID
	record  string
	version int64     // 0 if the store has none
	stage   Stage     // of the question now, if it has not ended
	ends    time.Time // when its task does, if that is known
	due     int       // how many nudges are due while it is pending
	unsure  bool      // an earlier attempt may have arrived

	escalated      string // see [Question.Escalated]
	newlyEscalated bool   // one of the due nudges that were not sent says so
}

// reminds reports whether people are to be reminded of a question that is pending.
func (l *letter) reminds() bool { return l.Sent == Pending && l.due > l.Nudged }

// neverAsked reports whether the channel surely does not know of a question.
func (l *letter) neverAsked() bool { return l.Sent == "" && l.Claim == "" }

// known reports whether the channel knows all that is known here of a question.
func (l *letter) known() bool { return l.stage == l.Sent && l.Sent != "" && !l.reminds() }

// digestOf returns what a delivery keeps of an address, which may hold a secret.
func digestOf(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:8])
}

// recordPrefix begins the names of deliveries. The name of the channel and the ID
// of the task follow.
const recordPrefix = "channel/"

func recordName(channel string, id task.ID) string { return recordPrefix + channel + "/" + string(id) }

// read reads a letter from the record that the store has of it.
func (l *letter) read(r task.Record) error {
	l.record, l.version = r.Name, r.Version
	return json.Unmarshal(r.Value, &l.delivery)
}

// put stores a letter as it is now. The error is [task.ErrConcurrentModification]
// if another replica has changed it.
func (o *Outbox) put(ctx context.Context, l *letter) error {
	value, err := json.Marshal(&l.delivery)
	if err != nil {
		return err
	}
	r := task.Record{Name: l.record, Version: l.version + 1, Value: value}
	r.Expires = later(o.cfg.Now(), l.ends).Add(keepOpen)
	if l.Sent.Final() {
		r.Expires = o.cfg.Now().Add(keepSent)
	}
	if err := o.cfg.Store.PutRecord(ctx, r); err != nil {
		return err
	}
	l.version++
	return nil
}

// open returns the letters of a channel whose question may change.
func (o *Outbox) open(ctx context.Context, channel string) ([]letter, error) {
	var found []letter
	q := task.RecordQuery{Prefix: recordName(channel, ""), Limit: pageSize}
	for {
		page, err := o.cfg.Store.ListRecords(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			l := letter{id: task.ID(r.Name[len(q.Prefix):])}
			if err := l.read(r); err != nil {
				o.cfg.Log.ErrorContext(ctx, "unreadable delivery", "record", r.Name, "error", err)
				continue
			}
			if !l.Sent.Final() {
				found = append(found, l)
			}
		}
		if len(page) < pageSize {
			return found, nil
		}
		q.After = page[len(page)-1].Name
	}
}
