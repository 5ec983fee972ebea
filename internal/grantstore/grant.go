// Package grantstore keeps standing approvals: a person who approves a held call can let
// further calls like it run without being asked.
package grantstore

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Grant is a standing approval: it lets calls run that are like one that people
// have approved, until a time and so many times at most. A grant changes only by
// [Store], with one compare-and-set, so that its uses are counted exactly
// whatever the number of replicas.
type Grant struct {
	ID       task.GrantID `json:"id"`
	Workflow string       `json:"workflow"`
	Pattern  task.Digest  `json:"pattern"`        // what all calls of the grant have in common: [Scope.Digest]
	Free     []string     `json:"free,omitempty"` // the arguments that may have any value of the same type

	// Meta has digests of metadata that differs from request to request and is no
	// part of the pattern, by name. It is sent only if it is what the approvers saw.
	Meta map[string]task.Digest `json:"meta,omitempty"`

	From    task.ID         `json:"from"` // the task whose approvers gave the grant
	By      []task.Decision `json:"by"`   // their approvals
	GivenAt time.Time       `json:"givenAt"`
	Until   time.Time       `json:"until"`
	MaxUses int             `json:"maxUses"`

	Uses    []Use       `json:"uses,omitempty"` // oldest first
	Revoked *Revocation `json:"revoked,omitzero"`

	Facts string `json:"facts,omitzero"` // what people are shown of it
}

// A Use is one use of a [Grant]. It is counted before the task is created: if
// there is no such task, and never was, the process ended in between and the call
// never ran.
type Use struct {
	Task task.ID   `json:"task"`
	At   time.Time `json:"at"`
}

// A Revocation is the end of a [Grant] by somebody's wish.
type Revocation struct {
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitzero"`
}

// MaxUses is how many uses a grant can have. Its record has room for them.
const MaxUses = 200

// Narrowest returns the terms that all of the decisions admit: the earliest end,
// the fewest uses, and what all of them leave free. It reports false if one of the
// decisions gives no grant.
func Narrowest(all []task.Decision) (task.GrantTerms, bool) {
	if len(all) == 0 || slices.ContainsFunc(all, func(d task.Decision) bool { return d.Gives == nil }) {
		return task.GrantTerms{}, false
	}
	terms := *all[0].Gives
	terms.Free = slices.Clone(terms.Free)
	for _, d := range all[1:] {
		terms.Until, terms.Uses = earliest(terms.Until, d.Gives.Until), min(terms.Uses, d.Gives.Uses)
		terms.Free = slices.DeleteFunc(terms.Free, func(name string) bool { return !slices.Contains(d.Gives.Free, name) })
	}
	return terms, true
}

// The errors of a grant that cannot be used any more.
var (
	ErrRevoked = errors.New("grantstore: the grant was revoked")
	ErrExpired = errors.New("grantstore: the time of the grant is over")
	ErrSpent   = errors.New("grantstore: all uses of the grant are taken")
)

// Limits are how far any grant may go.
type Limits struct {
	Longest time.Duration // from when it was given
	Uses    int
}

// Usable returns nil if g can be used at time now, within limits that may have
// become narrower since it was given.
func (g Grant) Usable(now time.Time, l Limits) error {
	switch {
	case g.Revoked != nil:
		return ErrRevoked
	case !now.Before(earliest(g.Until, g.GivenAt.Add(l.Longest))):
		return ErrExpired
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

// check returns what is wrong with g as a new grant.
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

// Admission returns the event by which g approves a call, with the approvals of those
// who gave it.
func (g Grant) Admission(by, reason string) (task.Admit, error) {
	if wrong := g.check(); wrong != "" {
		return task.Admit{}, &task.Error{Kind: task.KindInvalid, Action: task.ActionAdmit, Detail: "grant: " + wrong}
	}
	return task.Admit{By: by, Reason: reason, Grant: g.ID, Approvals: g.By}, nil
}

// A Scope is what calls of one grant have in common: who makes them, for which
// workflow, of which tool as it was defined, and with which arguments and whatever
// else is sent.
type Scope struct {
	Owner      string
	Principal  string // who the owner is to people
	Workflow   string
	ToolDigest string    // of the tool's definition
	Call       task.Call // without metadata that differs from request to request
	Free       []string
}

// Digest returns the digest of s: of the values of all arguments but the free ones,
// of which it has the name and the type. Two calls have the same digest only if they
// have arguments of the same names and differ in the values of free ones at most.
// Values are compared as those of [task.Call.Digest]. It fails if a free argument is
// missing, or named twice.
func (s Scope) Digest() (task.Digest, error) {
	b := appendText(nil, "thoughtgate grant 1")
	for _, part := range [...]string{s.Owner, s.Principal, s.Workflow, s.ToolDigest, s.Call.Upstream, s.Call.Method, s.Call.Name} {
		b = appendText(b, part)
	}
	b, err := appendCanonical(b, s.Call.Also)
	if err != nil {
		return task.Digest{}, fmt.Errorf("what is sent besides: %w", err)
	}
	if b, err = s.appendArguments(b); err != nil {
		return task.Digest{}, fmt.Errorf("arguments: %w", err)
	}
	return sha256.Sum256(b), nil
}

// appendArguments appends the arguments. Each is a text that says whether it is
// free, its name, and its value or, if it is free, its type.
func (s Scope) appendArguments(b []byte) ([]byte, error) {
	if len(s.Free) == 0 {
		return appendCanonical(appendText(b, "whole"), s.Call.Arguments)
	}
	members, err := arguments(s.Call.Arguments)
	if err != nil {
		return nil, err
	}
	b = binary.BigEndian.AppendUint64(appendText(b, "members"), uint64(len(members)))
	free := 0
	for _, name := range slices.Sorted(maps.Keys(members)) {
		how, value := "pinned", members[name]
		if slices.Contains(s.Free, name) {
			how, value = "free", json.RawMessage(typeOf(value))
			free++
		}
		for _, text := range []string{how, name, string(value)} {
			b = appendText(b, text)
		}
	}
	if free != len(s.Free) {
		return nil, errors.New("a free argument is missing")
	}
	return b, nil
}

// typeOf returns the type of a value as JSON Schema calls it.
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

// arguments returns the members of arguments by their names, each in its canonical
// form. It fails if the arguments are no object, or name one twice.
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

// idLetters are the digits of an ID, without those that look like another. Each
// stands for five bits.
const idLetters = "0123456789abcdefghjkmnpqrstvwxyz"

const (
	grantPrefix = "gr_"
	grantTool   = 8  // characters that grants for one tool and owner have in common
	grantRandom = 16 // characters that nobody can guess: 80 bits
)

// NewID returns an ID for a grant of the given scope.
func NewID(s Scope) task.GrantID {
	var random [grantRandom]byte
	_, _ = rand.Read(random[:]) // never fails; the program ends if there is no randomness
	return task.GrantID(s.idPrefix() + letters(random[:]))
}

// ValidID reports whether id can be the ID of a grant.
func ValidID(id task.GrantID) bool {
	rest, ok := strings.CutPrefix(string(id), grantPrefix)
	return ok && len(rest) == grantTool+grantRandom && strings.Trim(rest, idLetters) == ""
}

// idPrefix returns what the IDs of all grants for the tool and owner of s begin with.
func (s Scope) idPrefix() string {
	b := appendText(nil, "thoughtgate grants of a tool 1")
	for _, part := range [...]string{s.Owner, s.Call.Upstream, s.Call.Name} {
		b = appendText(b, part)
	}
	sum := sha256.Sum256(b)
	return grantPrefix + letters(sum[:grantTool])
}

// letters returns a character for each of the bytes, of which it has five bits.
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

// appendCanonical appends the canonical form of a JSON value, if there is one, after
// its length.
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

// precise returns t as it is stored: in UTC and in whole microseconds.
func precise(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
