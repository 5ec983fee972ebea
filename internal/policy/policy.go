// Package policy decides whether a call is forwarded, held for approval or
// denied. [Compile] turns a [Config] into an immutable [Snapshot]:
//
//	s, warnings, err := policy.Compile(policy.Config{
//		Rules:   []policy.Rule{{Match: "delete_*", Action: policy.Approve}},
//		Default: policy.Rule{Action: policy.Forward},
//	})
//	verdict := s.Judge(policy.Call{Method: "tools/call", Name: "delete_user", …})
//
// [Snapshot.Judge] is a pure function of the snapshot and the call. The package
// has no access to files, HTTP, tasks or approvers.
//
// The first rule that matches a call decides. Its action forwards, holds, denies,
// or evaluates the Cedar policies. A rule without a kind applies to tools,
// resources and prompts, so that a deny rule covers all of them.
//
// # Cedar
//
// The policies are evaluated once per call: may this principal do this action to
// this resource, in this context? The file thoughtgate.cedarschema has the types.
// [Compile] validates policies against it, except for comparisons of arguments,
// whose types are not declared. A forbid, no permit, or an error in any policy
// denies. A permit with the annotation @approval("name") holds the call for that
// workflow; without a name, for the workflow of the rule. Of several workflows the
// strictest counts: the higher quorum, then no self-approval, then the shorter
// timeout, then the first name. Any other permit forwards.
//
// # Arguments
//
// The mapping of JSON arguments to Cedar values loses nothing that a policy can
// compare:
//
//	object        record; no name is special, not even __entity
//	array         set: order and repetition are lost, as in every Cedar set
//	string        string
//	true, false   bool
//	null          the entity ThoughtGate::Null::"null", which equals nothing else
//	number        long if it is whole, otherwise decimal; 1.0 and 1e0 are 1, -0 is 0
//
// context.decimals has the same arguments with every number as a decimal, for
// amounts with an optional fraction. Absent or null arguments are an empty record.
//
// An argument without a Cedar form denies the call: a whole number beyond 64 bits,
// a fraction with more than four digits, nesting deeper than 32, an array of more
// than 1000 elements, more than 10000 values, duplicate names, invalid UTF-8. It
// denies only if a policy about the tool can read that member of the arguments,
// which its text shows. So a large file among the arguments costs nothing unless a
// policy reads it.
package policy

import (
	"time"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// An Action is the outcome of a rule or of a verdict.
type Action string

// The actions of rules. A [Verdict] never has AskPolicies.
const (
	Forward     Action = "forward"
	Approve     Action = "approve"
	Deny        Action = "deny"
	AskPolicies Action = "policy"
)

// A Kind is the kind of thing that a call uses.
type Kind string

// The kinds of calls.
const (
	Tool     Kind = "tool"
	Resource Kind = "resource"
	Prompt   Kind = "prompt"
)

func (k Kind) known() bool { return k == Tool || k == Resource || k == Prompt }

// Governed returns the kind of a request by its method, and whether policy applies to it.
//
// Policy does not apply to resources/unsubscribe: a client that may no longer
// subscribe to a resource must still be able to end its subscription.
func Governed(method string) (Kind, bool) {
	switch method {
	case mcpname.ToolsCall:
		return Tool, true
	case mcpname.ResourcesRead, mcpname.ResourcesSubscribe:
		return Resource, true
	case mcpname.PromptsGet:
		return Prompt, true
	default:
		return "", false
	}
}

// SubjectMember returns the member of params that names the tool, resource or prompt, or ""
// if policy does not apply to the method.
func SubjectMember(method string) string {
	switch kind, governed := Governed(method); {
	case !governed:
		return ""
	case kind == Resource:
		return "uri"
	default:
		return "name"
	}
}

// The longest names that rules accept. MCP recommends at most 128 characters for names of
// tools; browsers and servers accept URIs of a few thousand.
const (
	maxName = 1 << 10 // bytes, of a tool or prompt
	maxURI  = 8 << 10
)

// TooLong reports whether a name, or the URI of a resource, is too long for rules.
func TooLong(kind Kind, name string) bool {
	if kind == Resource {
		return len(name) > maxURI
	}
	return len(name) > maxName
}

// A Config is the source of a [Snapshot].
type Config struct {
	Rules     []Rule
	Default   Rule                // for calls that no rule matches; only Action, Workflow, Reason and Mode may be set
	Workflows map[string]Workflow // empty means one workflow with the name default
	Cedar     []Source
	Observe   bool           // forward every call, and only report the verdict; rules may have another mode
	Zone      *time.Location // of context.hour and context.weekday; nil means UTC
	Upstreams []string       // all names; nil means that any name is valid
	Pins      *Pins          `json:",omitzero"` // nil without a lock file
}

// A Rule decides the calls that match it.
type Rule struct {
	Name       string // optional; replaces the index of the rule in texts
	Match      string // glob for the name of the tool or prompt, or the URI of the resource
	Action     Action
	Workflow   string   // of approve, and of policy for an @approval without a name; empty means default
	Reason     string   // for people and agents
	Upstream   string   // glob for the name of the upstream; empty means any
	Kind       Kind     // empty means any
	Principals []string // globs for ids, or group:GLOB; anonymous principals match none; nil means all
	Secrets    []string `json:",omitzero"` // the arguments have such a secret; see [secrets.New]; nil means any arguments
	Mode       Mode     `json:",omitzero"` // empty means that of the policy
}

// A Mode says what happens to calls that a rule holds or denies.
type Mode string

// The modes.
const (
	Enforce Mode = "enforce"
	Observe Mode = "observe" // forward them, and only report the verdict
)

// A Source is a text with Cedar policies.
type Source struct {
	Name string // such as the name of its file; unique
	Text []byte
}
