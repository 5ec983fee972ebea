// Package callrecord keeps the record of calls: what policy decided about each message that it
// governs, and what became of the call.
package callrecord

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An Entry is one event of a call. A call that was forwarded or denied has one entry. A held call
// has one when it was judged, and one when it ended, with the same ID.
type Entry struct {
	Time     time.Time `json:"time"`
	Event    Event     `json:"event"`
	ID       string    `json:"id,omitzero"`  // of a held call
	Ref      string    `json:"ref,omitzero"` // names the entry; set when it is read from a store
	Upstream string    `json:"upstream"`
	Method   string    `json:"method"`
	Name     string    `json:"name"` // of the tool or prompt, or the URI of the resource

	Principal string   `json:"principal,omitzero"` // empty if anonymous
	Groups    []string `json:"groups,omitempty"`
	Client    Client   `json:"client,omitzero"`

	// The hints about the tool when it was judged; see [policy.Call].
	Hints   policy.Annotations `json:"hints,omitzero"`
	Listed  bool               `json:"listed,omitzero"`
	Changed bool               `json:"changed,omitzero"`

	// The definition of the tool when it was judged; see [policy.Call].
	ToolDigest string `json:"toolDigest,omitzero"`
	Accepted   bool   `json:"accepted,omitzero"`

	// Digest is a keyed digest of the arguments as the client has written them. It is empty if there
	// are none.
	Digest    string         `json:"digest,omitzero"`
	Arguments jsontext.Value `json:"arguments,omitzero"` // empty if not recorded
	Redacted  bool           `json:"redacted,omitzero"`  // Arguments lacks values that the call had

	Action   policy.Action `json:"action"`            // forward, approve or deny
	Observed policy.Action `json:"observed,omitzero"` // what mode observe replaced by forward
	Workflow string        `json:"workflow,omitzero"`
	Rule     string        `json:"rule,omitzero"`      // that decided: "rule NAME", "rules[3]", "default" or "gate"
	Policies []string      `json:"policies,omitempty"` // ids of the Cedar policies that decided
	Snapshot string        `json:"snapshot,omitzero"`  // id of the policy

	Outcome string        `json:"outcome,omitzero"` // such as success, error, denied, completed, rejected or expired
	Took    time.Duration `json:"took,omitzero"`    // in nanoseconds, until the answer or the end
	Decided time.Time     `json:"decided,omitzero"` // when people decided
	By      []string      `json:"by,omitempty"`     // the people who decided

	// Of the end of a held call.
	Reason string     `json:"reason,omitzero"` // of the last decision
	Grant  string     `json:"grant,omitzero"`  // id of the standing approval that let it run
	Stage  task.Stage `json:"stage,omitzero"`  // how far it came, if it has no result
	Ran    task.Ran   `json:"ran,omitzero"`    // whether it ran, if it has no result

	// Shown is what approvers were shown of the arguments, also if Arguments is empty: without the
	// values that are hidden from them, and with hidden characters escaped. If it was Cut, it is a
	// JSON string with the first part.
	Shown jsontext.Value `json:"shown,omitzero"`
	Cut   bool           `json:"cut,omitzero"`
}

// An Event says what an entry is about.
type Event string

// The events.
const (
	Judged Event = "judged" // policy decided
	Ended  Event = "ended"  // a held call ended
)

// Outcomes of an entry, besides the states in which a held call ends.
const (
	Success  = "success"
	Error    = "error"      // of the gate or the upstream, without a result
	ToolFail = "tool_error" // the result tells of an error of the tool
	Gone     = "gone"       // the client did not wait for the answer
	Denied   = "denied"
	Refused  = "refused" // for another reason than the verdict; it did not run
	Held     = "held"
	Attached = "attached" // to an identical held call, which has the ID
)

// A Client is what a client claims about itself.
type Client struct {
	Name     string `json:"name,omitzero"`
	Version  string `json:"version,omitzero"`
	Protocol string `json:"protocol,omitzero"`
}

// A written entry has its JSON form, for reading.
type written struct {
	*plain

	Hints hints `json:"hints,omitzero"`
	Took  int64 `json:"took,omitzero"`
}

type plain Entry // without methods

// hints are [policy.Annotations] as the API has them.
type hints struct {
	ReadOnly    *bool  `json:"readOnly,omitzero"`
	Destructive *bool  `json:"destructive,omitzero"`
	Idempotent  *bool  `json:"idempotent,omitzero"`
	OpenWorld   *bool  `json:"openWorld,omitzero"`
	Title       string `json:"title,omitzero"`
}

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (e *Entry) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	w := written{plain: (*plain)(e)}
	err := json.UnmarshalDecode(from, &w)
	e.Hints, e.Took = policy.Annotations(w.Hints), time.Duration(w.Took)
	return err
}

// maxLine is the most bytes of an entry as a line.
const maxLine = 1 << 20

// Read returns the entries in lines of JSON. It ends after an error.
func Read(r io.Reader) iter.Seq2[Entry, error] {
	return read(r, func([]byte) bool { return true })
}

// read is Read for the lines that are wanted. An entry of another line is empty.
func read(r io.Reader, wanted func(line []byte) bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxLine)
		for n := 1; lines.Scan(); n++ {
			line := bytes.TrimSpace(lines.Bytes())
			if len(line) == 0 {
				continue
			}
			var e Entry
			if !wanted(line) {
				if !yield(e, nil) {
					return
				}
				continue
			}
			if err := json.Unmarshal(line, &e); err != nil {
				yield(Entry{}, fmt.Errorf("line %d is no entry of a call record: %w", n, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Entry{}, err)
		}
	}
}

// Call returns the call as policy judged it, without arguments that were not recorded.
func (e *Entry) Call() policy.Call {
	return policy.Call{
		Upstream: e.Upstream, Method: e.Method, Name: e.Name, Arguments: e.Arguments,
		Principal:   policy.Principal{ID: e.Principal, Groups: e.Groups, Anonymous: e.Principal == ""},
		Annotations: e.Hints, Listed: e.Listed, Changed: e.Changed, Digest: e.ToolDigest, Accepted: e.Accepted,
		Session: policy.Session{Client: e.Client.Name, Version: e.Client.Version, Protocol: e.Client.Protocol},
		Time:    e.Time,
	}
}
