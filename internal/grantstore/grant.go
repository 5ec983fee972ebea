// Package grantstore stores standing approvals. With a standing approval, a person who approves
// a held call lets similar calls run without another approval, until a deadline and a limited
// number of times. For example, an approver of a call of delete_file may let the same agent
// make 10 such calls within an hour, with any value of the argument path.
//
// A [Grant] is one standing approval. Its [Scope] says which calls it covers. A [Store] counts
// its uses.
package grantstore

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A Grant is a standing approval. It lets calls run that are like an approved call, until a
// deadline and at most MaxUses times. Only [Store] changes grants, with one compare-and-set
// each, so uses are counted exactly by any number of replicas.
type Grant struct {
	ID       gatetask.GrantID `json:"id"`
	Workflow string           `json:"workflow"`
	Pattern  task.Digest      `json:"pattern"` // the [Scope.Digest] that all covered calls share
	gatetask.GrantShape

	// ReadOnly are the tools of [gatetask.ReachReadOnly].
	ReadOnly []gatetask.GrantTool `json:"readOnly,omitempty"`

	// Meta has digests, by name, of request metadata that is not part of the pattern. A member
	// is sent only if its value is the one that the approvers saw.
	Meta map[string]task.Digest `json:"meta,omitempty"`

	From    task.ID             `json:"from"` // the task whose approvers gave the grant
	By      []gatetask.Decision `json:"by"`   // their approvals
	GivenAt time.Time           `json:"givenAt"`
	Until   time.Time           `json:"until"`
	MaxUses int                 `json:"maxUses"`

	// Retry means that the approvers approved one call that did not run. The grant lets exactly
	// that call run once, even if the workflow allows no grants.
	Retry bool `json:"again,omitzero"`

	// Correction means that the approver rejected a call and approved this one instead, which no
	// agent had made yet. It is also a Retry.
	Correction bool `json:"correction,omitzero"`

	Uses    []Use       `json:"uses,omitempty"` // oldest first
	Revoked *Revocation `json:"revoked,omitzero"`

	Facts string `json:"facts,omitzero"` // describes the grant to operators
}

// A Use is one use of a [Grant]. It is counted before the task is created. A use without a task
// means that the process ended in between; the call never ran.
type Use struct {
	Task task.ID   `json:"task"`
	At   time.Time `json:"at"`
}

// A Revocation is the end of a [Grant] by the decision of an operator.
type Revocation struct {
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitzero"`
}

// MaxUses is the maximum number of uses of a grant. They all fit into its record.
const MaxUses = 200

// Narrowest returns the terms on which all decisions agree: the earliest end, the fewest uses, the
// narrowest reach, and the arguments that all of them leave free. It returns false if a decision
// gives no grant.
func Narrowest(all []gatetask.Decision) (gatetask.GrantTerms, bool) {
	//mutate:swap "if len(all) == 0 || slices.ContainsFunc(all, func(d gatetask.Decision) bool { return d.NewGrant == nil })" "all = slices.DeleteFunc(slices.Clone(all), func(d gatetask.Decision) bool { return d.NewGrant == nil }); if len(all) == 0" internal/approval.TestGrantQuorum one of several approvers gives a grant
	if len(all) == 0 || slices.ContainsFunc(all, func(d gatetask.Decision) bool { return d.NewGrant == nil }) {
		return gatetask.GrantTerms{}, false
	}
	terms := *all[0].NewGrant
	for _, d := range all[1:] {
		terms.Until, terms.Uses = earliest(terms.Until, d.NewGrant.Until), min(terms.Uses, d.NewGrant.Uses)
		terms.GrantShape = narrower(terms.GrantShape, d.NewGrant.GrantShape)
	}
	return terms, true
}

// The errors of a grant that can no longer be used.
var (
	ErrRevoked = errors.New("grantstore: the grant was revoked")
	ErrExpired = errors.New("grantstore: the time of the grant is over")
	ErrSpent   = errors.New("grantstore: all uses of the grant are taken")
)

// Limits are the widest allowed terms of a grant.
type Limits struct {
	Longest time.Duration // from the time when it was given
	Uses    int
	Reach   string // a [gatetask.GrantReach]
}

// Usable returns nil if g can be used at time now, within limits that may have become narrower
// since g was given.
func (g Grant) Usable(now time.Time, l Limits) error {
	if g.Retry {
		l = Limits{Longest: g.Until.Sub(g.GivenAt), Uses: 1}
	}
	switch {
	//mutate:false internal/approval.TestShapeNeedsCurrentPolicy a workflow that forbids a reach does not end its grants
	case !g.Reach.Within(gatetask.GrantReach(l.Reach)):
		return ErrExpired
	//mutate:false internal/approval.TestGrantNeedsCurrentPolicy a revoked grant is used
	case g.Revoked != nil:
		return ErrRevoked
	//mutate:false internal/approval.TestGrantNeedsCurrentPolicy a grant is used after its end
	case !now.Before(earliest(g.Until, g.GivenAt.Add(l.Longest))):
		return ErrExpired
	//mutate:false internal/approval.TestGrantIsNotOverused a grant is used too often
	case len(g.Uses) >= min(g.MaxUses, l.Uses):
		return ErrSpent
	default:
		return nil
	}
}

// use returns g with one more use.
func (g Grant) use(of task.ID, now time.Time, l Limits) (Grant, error) {
	if err := g.Usable(now, l); err != nil {
		return g, err
	}
	g.Uses = append(slices.Clip(g.Uses), Use{Task: of, At: precise(now)})
	return g, nil
}

// check returns why g is not valid as a new grant, or "".
func (g Grant) check() string {
	switch {
	case g.ID == "":
		return "no id"
	case g.Pattern == task.Digest{}:
		return "no pattern"
	case len(g.By) == 0:
		return "no approvals"
	case g.MaxUses < 1 || g.MaxUses > MaxUses:
		return "the number of uses"
	case !g.Until.After(g.GivenAt):
		return "no time"
	default:
		return ""
	}
}

// Admission returns the event by which g approves a call. It has the approvals of the approvers
// who gave g.
func (g Grant) Admission(by, reason string) (lifecycle.Admit, error) {
	//mutate:false TestAdmissionHasApprovals a grant without approvers lets a call run
	if wrong := g.check(); wrong != "" {
		return lifecycle.Admit{}, &task.Error{Kind: task.ErrInvalid, Action: action.Admit, Detail: "grant: " + wrong}
	}
	return lifecycle.Admit{By: by, Reason: reason, Grant: g.ID, Approvals: g.By}, nil
}

// typeOf returns the JSON Schema type of a value.
func typeOf(v json.RawMessage) string {
	kind := jsontext.Value(v).Kind()
	switch kind {
	case 't', 'f':
		return "boolean"
	case '{':
		return "object"
	case '[':
		return "array"
	default:
		return kind.String()
	}
}

// arguments returns the members of arguments by name, in canonical form. It fails if the text
// is not an object or has duplicate names.
func arguments(text string) (map[string]json.RawMessage, error) {
	form, err := jsontext.AppendFormat(nil, text, jsontext.ReorderRawObjects(true))
	if err != nil {
		return nil, err
	}
	if jsontext.Value(form).Kind() != '{' {
		return nil, errors.New("not an object")
	}
	members := map[string]json.RawMessage{}
	return members, jsonv2.Unmarshal(form, &members)
}

// idLetters are the digits of an id, without letters that look alike. Each digit encodes five
// bits.
const idLetters = "0123456789abcdefghjkmnpqrstvwxyz"

const (
	grantPrefix = "gr_"
	grantTool   = 8  // characters that all grants share that [Store.For] returns together
	grantRandom = 16 // random characters: 80 bits
)

// NewID returns an id for a grant with the given scope.
func NewID(s Scope) gatetask.GrantID {
	var random [grantRandom]byte
	_, _ = rand.Read(random[:]) // never fails; the program ends if there is no randomness
	return gatetask.GrantID(s.idPrefix() + letters(random[:]))
}

// ValidID reports whether id has the form of a grant id.
func ValidID(id gatetask.GrantID) bool {
	rest, ok := strings.CutPrefix(string(id), grantPrefix)
	return ok && len(rest) == grantTool+grantRandom && strings.Trim(rest, idLetters) == ""
}

// idPrefix returns the common prefix of the ids of all grants with the reach of s for its owner
// and tool.
func (s Scope) idPrefix() string {
	parts := []string{"thoughtgate grants of a tool 1", s.Owner, s.Call.Upstream, s.Call.Name}
	switch s.Reach {
	case gatetask.ReachTool:
	case gatetask.ReachAgent:
		parts = []string{"thoughtgate grants of an agent 1", s.Principal}
	default:
		parts = []string{"thoughtgate grants of a server 1", s.Owner, s.Call.Upstream}
	}
	var b []byte
	for _, part := range parts {
		b = appendText(b, part)
	}
	sum := sha256.Sum256(b)
	return grantPrefix + letters(sum[:grantTool])
}

// letters returns a character for each byte, which encodes five of its bits.
func letters(of []byte) string {
	text := make([]byte, len(of))
	for i, b := range of {
		text[i] = idLetters[b%32]
	}
	return string(text)
}

// appendText appends a text after its length.
func appendText(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(text))), text...)
}

// appendCanonical appends the canonical form of a JSON value after its length. The value may be
// empty.
func appendCanonical(b []byte, value string) ([]byte, error) {
	if value == "" {
		return appendText(b, ""), nil
	}
	form, err := jsontext.AppendFormat(nil, value, jsontext.ReorderRawObjects(true))
	return appendText(b, string(form)), err
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// precise returns t as the store keeps it: in UTC and in whole microseconds.
func precise(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
