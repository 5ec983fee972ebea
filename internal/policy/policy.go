// Package policy says of every governed call whether it is forwarded, held for
// approval or denied, and why. It is pure: a [Config] is compiled into an
// immutable [Snapshot], and [Snapshot.Judge] is a function of the snapshot and
// a [Call]. It knows nothing of files, HTTP, tasks or approvers.
//
// Rules are tried in their order and the first that matches decides. Its
// action forwards, holds, denies, or puts the question to the Cedar policies.
// A rule that is not limited to a kind is about tools, resources and prompts
// alike: were it about tools only, a deny rule would protect less than it says.
//
// # Cedar
//
// The policies are asked one question per call: may this principal do this
// action to this resource, in this context? The vocabulary is the file
// thoughtgate.cedarschema. Policies are checked against it when they are
// compiled, except where they compare arguments, whose types nobody declares.
// A forbid, no permit, or an error in any policy denies. A permit annotated
// @approval("name") holds the call for that workflow, or for that of the rule
// if it gives no name; of several workflows the strictest counts: the higher
// quorum, then the one that forbids self-approval, then the shorter timeout,
// then the one whose name comes first. Any other permit forwards.
//
// # Arguments
//
// JSON arguments become Cedar values so that no decision can rest on a loss:
//
//	object        record; a name means nothing but itself, __entity included
//	array         set: order and repetition are lost, as in every Cedar set
//	string        string
//	true, false   bool
//	null          the entity ThoughtGate::Null::"null", which equals nothing else
//	number        by its value, however it is written: a whole number is a long,
//	              another one a decimal; 1.0 and 1e0 are 1, and -0 is 0
//
// In context.decimals the same arguments stand with every number as a decimal,
// for amounts that may or may not have a fraction. Absent or null arguments are
// an empty record.
//
// An argument without such a form denies the call: a whole number beyond 64
// bits, a fraction that is no decimal (four digits, 64 bits), nesting deeper
// than 32, an array of more than 1000 elements, more than 10000 values, duplicate
// names, invalid UTF-8. It denies only if a policy that is about the tool can
// read the member of the arguments in which it stands, because no other member
// can make a difference; which members a policy can read is known from its
// text. So a large file among the arguments costs nothing and denies nothing
// unless a policy looks at it.
package policy

import "time"

// An Action says what is done with a call.
type Action string

// The actions of rules. A [Verdict] never says AskPolicies.
const (
	Forward     Action = "forward"
	Approve     Action = "approve"
	Deny        Action = "deny"
	AskPolicies Action = "policy"
)

// A Kind says what a call is about.
type Kind string

// The kinds of things that calls are about.
const (
	Tool     Kind = "tool"
	Resource Kind = "resource"
	Prompt   Kind = "prompt"
)

func (k Kind) known() bool { return k == Tool || k == Resource || k == Prompt }

// Governed returns what a request of the given method is about. Only the
// methods for which it reports true are subject to policy.
//
// resources/unsubscribe is not: it gives the client nothing, and ends nothing but
// the client's own subscription. A client that may no longer subscribe to a
// resource must still be able to end a subscription that it has.
func Governed(method string) (Kind, bool) {
	switch method {
	case "tools/call":
		return Tool, true
	case "resources/read", "resources/subscribe":
		return Resource, true
	case "prompts/get":
		return Prompt, true
	default:
		return "", false
	}
}

// SubjectMember returns the member of the params of a request that names what the request is
// about, and "" if policy does not govern such requests.
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

// A Config is what a [Snapshot] is compiled from.
type Config struct {
	Rules     []Rule
	Default   Rule                // for calls that no rule matches; only Action, Workflow, Reason and Observe may be set
	Workflows map[string]Workflow // if there is none, a workflow called default exists
	Cedar     []Source
	Observe   bool           // forward every call, and only report what would have happened
	Zone      *time.Location // of context.hour and context.weekday; nil means UTC
	Upstreams []string       // all there are; nil means that any name is one
}

// A Rule says what is done with the calls that match it.
type Rule struct {
	Name       string // optional; names the rule wherever it is mentioned, instead of its place in the list
	Match      string // glob for the name of the tool or prompt, or the URI of the resource
	Action     Action
	Workflow   string   // with approve, and with policy for an @approval without a name; empty means default
	Reason     string   // for people; the agent reads it
	Upstream   string   // glob for the name of the upstream; empty means any
	Kind       Kind     // empty means any
	Principals []string // globs for ids, or after "group:" for groups, that no anonymous principal matches; nil means anyone
	Observe    bool     // forward what this rule would hold or deny, and only report that
}

// A Workflow holds what makes one workflow stricter than another.
type Workflow struct {
	Quorum       int           // how many must approve, at least 1
	Timeout      time.Duration // how long they have, more than 0
	SelfApproval bool          // whether the requester may be one of them
}

// DefaultWorkflow is the name of the workflow of those who name none.
const DefaultWorkflow = "default"

// A Source is one text of Cedar policies.
type Source struct {
	Name string // such as the name of its file; unique
	Text []byte
}
