package channel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A delivery is what the store keeps of a question on one channel.
type delivery struct {
	Sent     Stage     `json:"sent,omitzero"` // the stage that the channel was sent last, or unasked
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

// unasked is the stage of a question that was decided before the channel could be asked.
// Nothing more is sent about it.
const unasked Stage = "unasked"

// A storedDelivery is a delivery with its record in the store.
type storedDelivery struct {
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
func (l *storedDelivery) reminds() bool { return l.Sent == Pending && l.due > l.Nudged }

// neverAsked reports whether the channel surely does not know of a question.
func (l *storedDelivery) neverAsked() bool { return l.Sent == "" && l.Claim == "" }

// known reports whether the channel knows all that is known here of a question.
func (l *storedDelivery) known() bool { return l.stage == l.Sent && l.Sent != "" && !l.reminds() }

// digestOf returns what a delivery keeps of an address, which may hold a secret.
func digestOf(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:8])
}

// recordPrefix begins the names of deliveries. The name of the channel and the ID
// of the task follow.
const recordPrefix = "channel/"

func recordName(channel string, id task.ID) string { return recordPrefix + channel + "/" + string(id) }

// recordAt returns the name of the delivery of a question that was asked at another
// address first. The record of that address has the name without the digest.
func recordAt(name, via string) string { return name + "/" + via }

// read reads a delivery from the record that the store has of it.
func (l *storedDelivery) read(r task.Record) error {
	l.record, l.version = r.Name, r.Version
	return json.Unmarshal(r.Value, &l.delivery)
}

// put stores a delivery as it is now. The error is [task.ErrConcurrentModification]
// if another replica has changed it.
func (o *Outbox) put(ctx context.Context, l *storedDelivery) error {
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

// open returns the deliveries of the channel whose question may change, and which of these
// questions were asked at another address.
func (l *lane) open(ctx context.Context) (found []storedDelivery, elsewhere map[task.ID]bool, err error) {
	elsewhere = map[task.ID]bool{}
	q := task.RecordQuery{Prefix: recordName(l.name, ""), Limit: pageSize}
	for {
		page, err := l.cfg.Store.ListRecords(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range page {
			id, _, _ := strings.Cut(r.Name[len(q.Prefix):], "/") // the digest of the address may follow
			one := storedDelivery{id: task.ID(id)}
			if err := one.read(r); err != nil {
				l.cfg.Log.ErrorContext(ctx, "unreadable delivery", "record", r.Name, "error", err)
				continue
			}
			switch {
			case one.Sent.Final():
			case one.Via != "" && one.Via != l.via:
				elsewhere[one.id] = true
			default:
				found = append(found, one)
			}
		}
		if len(page) < pageSize {
			return found, elsewhere, nil
		}
		q.After = page[len(page)-1].Name
	}
}
