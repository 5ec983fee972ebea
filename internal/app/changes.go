package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// Each change of the policy is an entry of the journal. A record in the store names the current policy. With it, only
// one of several replicas writes the entry, and a gate that starts with another policy is noticed.
const (
	policyRecords      = "policy/"
	maxRecent          = 10               // changes in a record, for the inbox
	writeRetryInterval = 10 * time.Second // after a failed write
	finalWriteTimeout  = 5 * time.Second  // for the last write when the gate stops
)

// The causes of a change.
const (
	byFile   = "configuration file"
	bySignal = "SIGHUP"
	byStart  = "start of the gate"
)

// Outcomes of the step [approval.Configured].
const (
	policyChanged   = "policy_changed"
	settingsChanged = "settings_changed" // but not the policy
)

// A policyRecord names the current policy, and has the last changes, newest first.
type policyRecord struct {
	Policy string      `json:"policy"`
	Files  string      `json:"files"` // a short digest of the configuration files
	Recent []task.Note `json:"recent,omitempty"`
}

// changes records configuration changes in the journal. Only one goroutine may use it.
type changes struct {
	store    gatestore.Store
	gate     string // the name of a gate in a shared store; otherwise empty
	recorded func([]task.Note, error)

	applied []appliedConfig // not compared with the record yet
	notes   []task.Note     // not in the journal yet
}

// An appliedConfig is a configuration that has taken effect.
type appliedConfig struct {
	at     time.Time
	policy string // id of the snapshot; empty without a policy
	files  string // see [policyRecord]
	by     string
}

func (a *App) newChanges() *changes {
	c := &changes{store: a.approvals.store.Store, recorded: a.base.recorded}
	if a.approvals.sharedStore {
		c.gate = a.base.cfg.Upstreams[0].Name
	}
	return c
}

// write writes all changes to the journal. After an error, call it again.
func (c *changes) write(ctx context.Context) error {
	for len(c.applied) > 0 {
		if err := c.compare(ctx, c.applied[0]); err != nil {
			return err
		}
		c.applied = c.applied[1:]
	}
	if len(c.notes) == 0 {
		return nil
	}
	err := c.store.Append(ctx, c.notes...)
	c.recorded(c.notes, err)
	if err == nil {
		c.notes = nil
	}
	return err
}

// compare adds a note about t, unless the record shows that another replica has written it.
func (c *changes) compare(ctx context.Context, t appliedConfig) error {
	for {
		now, version, err := readPolicy(ctx, c.store, c.record())
		if err != nil {
			return err
		}
		if now.Policy == t.policy && now.Files == t.files {
			return nil
		}
		n := task.Note{
			At: t.at, Step: string(approval.Configured), Actor: t.by, Upstream: c.gate,
			PolicySnapshot: t.policy, PolicyBefore: now.Policy, Outcome: settingsChanged,
		}
		if now.Policy != t.policy {
			n.Outcome = policyChanged
		}
		known := version > 0 // the first policy of a store is not a change
		if known {
			now.Recent = append([]task.Note{n}, now.Recent...)
			now.Recent = now.Recent[:min(len(now.Recent), maxRecent)]
		}
		now.Policy, now.Files = t.policy, t.files
		value, err := json.Marshal(now)
		if err != nil {
			return err
		}
		err = c.store.PutRecord(ctx, gatestore.Record{Name: c.record(), Version: version + 1, Value: value})
		if errors.Is(err, task.ErrConcurrentModification) {
			continue
		}
		if err == nil && known {
			//mutate:drop TestChangeBeforeStartIsRecorded a changed policy leaves no entry
			c.notes = append(c.notes, n)
		}
		return err
	}
}

// record returns the name of the record that all gates with this configuration share.
func (c *changes) record() string {
	if c.gate == "" {
		return policyRecords + "serve"
	}
	sum := sha256.Sum256([]byte(c.gate))
	return policyRecords + "wrap-" + hex.EncodeToString(sum[:8])
}

// readPolicy returns a record and its version. A missing record is empty, with version 0.
func readPolicy(ctx context.Context, s gatestore.Records, name string) (policyRecord, int64, error) {
	var p policyRecord
	r, err := s.GetRecord(ctx, name)
	if errors.Is(err, task.ErrNotFound) {
		return p, 0, nil
	}
	if err == nil {
		err = json.Unmarshal(r.Value, &p)
	}
	return p, r.Version, err
}

// summarize counts the calls in the record.
func (ap *approvals) summarize(ctx context.Context, since, until time.Time, periods int) (callrecord.Summary, error) {
	return callrecord.Summarize(callrecord.All(ctx, ap.store.Store, callrecord.Filter{Since: since, Until: until}), since, until, periods)
}

// recentChanges returns the last changes of all gates on the store, newest first.
func (ap *approvals) recentChanges(ctx context.Context) ([]task.Note, error) {
	const maxGates = 1000
	records, err := ap.store.ListRecords(ctx, gatestore.RecordQuery{Prefix: policyRecords, Limit: maxGates})
	if err != nil {
		return nil, err
	}
	var recent []task.Note
	for _, r := range records {
		var p policyRecord
		if err := json.Unmarshal(r.Value, &p); err != nil {
			return nil, err
		}
		recent = append(recent, p.Recent...)
	}
	slices.SortStableFunc(recent, func(a, b task.Note) int { return b.At.Compare(a.At) })
	return recent[:min(len(recent), maxRecent)], nil
}
