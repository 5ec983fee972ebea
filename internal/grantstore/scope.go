package grantstore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A Scope has a call and the shape of a grant. All calls that the grant covers have the same
// [Scope.Digest]. They share the owner, the workflow and the other members that are sent; in the
// narrowest reach also the tool with its definition, and the pinned arguments.
type Scope struct {
	Owner      string
	Principal  string // identifies the owner to people
	Named      bool   // Principal is the same at all upstreams
	Workflow   string
	ToolDigest string    // of the tool's definition
	Call       task.Call // without request metadata

	// Trusted: the definition of the tool is the first known one, or one that an operator has
	// accepted. ReadOnly: it says that the tool is read-only.
	Trusted, ReadOnly bool

	gatetask.GrantShape
	Tools []gatetask.GrantTool // of [gatetask.ReachReadOnly]; its digest is GrantShape.Tools
}

// Digest returns the digest of s. In the narrowest reach it covers the values of pinned arguments,
// the names and types of free ones, and the directories of paths. So two calls have the same digest
// only if their arguments have the same names, and only values of free arguments and paths differ.
// Values are compared as by [task.Call.Digest]. Digest fails if the shape does not cover the call of
// s, for example because a free argument is missing or named twice.
func (s Scope) Digest() (task.Digest, error) {
	//mutate:false TestWideScope a wide grant covers only identical calls
	if s.Reach != gatetask.ReachTool {
		return s.wideDigest()
	}
	b := appendText(nil, "thoughtgate grant 1")
	for _, part := range [...]string{s.Owner, s.Principal, s.Workflow, s.ToolDigest, s.Call.Upstream, s.Call.Method, s.Call.Name} {
		b = appendText(b, part)
	}
	//mutate:swap "s.Call.Also" `""` internal/approval.TestGrantCoversNothingElse a grant covers calls with other members
	b, err := appendCanonical(b, s.Call.Also)
	if err != nil {
		return task.Digest{}, fmt.Errorf("what is sent besides: %w", err)
	}
	if b, err = s.appendArguments(b); err != nil {
		return task.Digest{}, fmt.Errorf("arguments: %w", err)
	}
	return sha256.Sum256(b), nil
}

// wideDigest returns the digest for a reach of several tools.
func (s Scope) wideDigest() (task.Digest, error) {
	if problem := s.outside(); problem != "" {
		return task.Digest{}, errors.New(problem)
	}
	owner, upstream := s.Owner, s.Call.Upstream
	if s.Reach == gatetask.ReachAgent {
		owner, upstream = "", "" // they differ at each upstream
	}
	b := appendText(nil, "thoughtgate wide grant 1")
	for _, part := range [...]string{string(s.Reach), owner, s.Principal, s.Workflow, upstream, s.Call.Method, s.GrantShape.Tools} {
		b = appendText(b, part)
	}
	b, err := appendCanonical(b, s.Call.Also)
	return sha256.Sum256(b), err
}

// outside returns why the wide shape of s does not cover its call, or "".
func (s Scope) outside() string {
	switch {
	case !s.Reach.Within(gatetask.ReachAgent):
		return "the reach is not known"
	// The conditions could be met by an argument that the tool ignores.
	case len(s.Free) > 0 || len(s.Below) > 0:
		return "other tools have other arguments"
	//mutate:false TestWideScope a wide grant covers a changed tool
	case !s.Trusted || s.ToolDigest == "":
		return "the tool is not known, or has changed"
	//mutate:false TestWideScope a grant for all upstreams covers an agent that is not identified
	case s.Reach == gatetask.ReachAgent && !s.Named:
		return "the agent has no identity"
	case s.Reach == gatetask.ReachReadOnly && !s.listed():
		return "the tool was not in the list of read-only tools"
	default:
		return ""
	}
}

// listed reports whether the tool is read-only, and is in the list as it is defined.
func (s Scope) listed() bool {
	//mutate:swap "ToolsDigest(s.Tools) == s.GrantShape.Tools && " "" TestWideScope a list that was not given counts
	//mutate:swap "s.ReadOnly && " "" TestWideScope a tool that is no longer read-only counts
	return s.ReadOnly && ToolsDigest(s.Tools) == s.GrantShape.Tools && slices.Contains(s.Tools, gatetask.GrantTool{Name: s.Call.Name, Digest: s.ToolDigest})
}

// ToolsDigest returns the digest of a list of tools.
func ToolsDigest(tools []gatetask.GrantTool) string {
	b := appendText(nil, "thoughtgate tools of a grant 1")
	for _, t := range tools {
		b = appendText(appendText(b, t.Name), t.Digest)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// appendArguments appends the arguments. Each is a text that says how it is compared, its name, and
// its value, its type if it is free, or its directory.
func (s Scope) appendArguments(b []byte) ([]byte, error) {
	if len(s.Free) == 0 && len(s.Below) == 0 {
		return appendCanonical(appendText(b, "whole"), s.Call.Arguments)
	}
	members, err := arguments(s.Call.Arguments)
	if err != nil {
		return nil, err
	}
	b = binary.BigEndian.AppendUint64(appendText(b, "members"), uint64(len(members)))
	loose := 0
	for _, name := range slices.Sorted(maps.Keys(members)) {
		how, value, err := s.compared(name, members[name])
		if err != nil {
			return nil, err
		}
		if how != pinned {
			loose++
		}
		for _, text := range []string{how, name, value} {
			b = appendText(b, text)
		}
	}
	if loose != len(s.Free)+len(s.Below) {
		return nil, errors.New("a free argument is missing")
	}
	return b, nil
}

// How arguments are compared.
const (
	pinned = "pinned"
	free   = "free"
	below  = "below"
)

// compared returns how an argument is compared, and what all covered calls have in common there.
func (s Scope) compared(name string, value json.RawMessage) (how, common string, err error) {
	//mutate:swap "slices.Contains(s.Free, name)" "len(s.Free) > 0" TestGrantScope.* a pinned argument may have any value
	if slices.Contains(s.Free, name) {
		//mutate:swap "typeOf(value)" `""` TestGrantScope.* a free argument may have any type
		return free, typeOf(value), nil
	}
	for _, b := range s.Below {
		if b.Argument != name {
			continue
		}
		//mutate:false TestPathScope a path outside of the directory is covered
		if !isBelow(b.Directory, value) {
			return "", "", errors.New("a path is not below its directory")
		}
		return below, b.Directory, nil
	}
	return pinned, string(value), nil
}

// isBelow reports whether a JSON value is a path below a directory.
func isBelow(directory string, value json.RawMessage) bool {
	if jsontext.Value(value).Kind() != '"' {
		return false
	}
	text, err := jsontext.AppendUnquote(nil, value)
	return err == nil && Below(directory, string(text))
}

// narrower returns the shape of the calls that both shapes cover, for the same call of approvers.
func narrower(a, b gatetask.GrantShape) gatetask.GrantShape {
	switch {
	case a.Reach != b.Reach:
		if !a.Reach.Within(b.Reach) {
			return b
		}
		return a // a wider reach allows any arguments
	case a.Reach != gatetask.ReachTool:
		if a.Tools != b.Tools {
			return gatetask.GrantShape{} // they saw other lists
		}
		return a
	}
	both := gatetask.GrantShape{}
	for _, name := range a.Free {
		if slices.Contains(b.Free, name) {
			both.Free = append(both.Free, name)
		}
	}
	for _, one := range a.Below {
		if dir, ok := narrowerDirectory(one, b); ok {
			both.Below = append(both.Below, gatetask.GrantBelow{Argument: one.Argument, Directory: dir})
		}
	}
	for _, one := range b.Below {
		if slices.Contains(a.Free, one.Argument) {
			both.Below = append(both.Below, one)
		}
	}
	return both
}

// narrowerDirectory returns the directory below which both one and other allow the argument of one.
func narrowerDirectory(one gatetask.GrantBelow, other gatetask.GrantShape) (string, bool) {
	if slices.Contains(other.Free, one.Argument) {
		return one.Directory, true
	}
	for _, b := range other.Below {
		switch {
		case b.Argument != one.Argument:
		case b.Directory == one.Directory || Below(one.Directory, b.Directory):
			return b.Directory, true
		case Below(b.Directory, one.Directory):
			return one.Directory, true
		}
	}
	return "", false
}

// Wider reports whether a has calls that b does not have, for the same call of approvers.
func Wider(a, b gatetask.GrantShape) bool {
	if a.Reach != gatetask.ReachTool || b.Reach != gatetask.ReachTool {
		return !a.Reach.Within(b.Reach) || a.Reach == b.Reach && a.Tools != b.Tools
	}
	for _, one := range a.Below {
		if dir, ok := narrowerDirectory(one, b); !ok || dir != one.Directory {
			return true
		}
	}
	return slices.ContainsFunc(a.Free, func(name string) bool { return !slices.Contains(b.Free, name) })
}
