package replay

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// ErrNoPolicy means that there is nothing to explain.
var ErrNoPolicy = errors.New("there is no policy: every call is forwarded")

// An Explanation says how a recorded call was judged, how a policy judges it, and what would have to
// differ for another verdict. It has no values of arguments.
type Explanation struct {
	policy.Explanation `json:",inline"`

	Then      Then                 `json:"then"`
	Otherwise []policy.Alternative `json:"otherwise,omitempty"`
}

// Then is how a call was judged when it was recorded.
type Then struct {
	Time     time.Time `json:"time"`
	ID       string    `json:"id"` // of a held call, or the reference of the entry
	Verdict  Verdict   `json:"verdict"`
	Rule     string    `json:"rule"`
	Policies []string  `json:"policies,omitempty"`
	Snapshot string    `json:"snapshot"`
	Outcome  string    `json:"outcome,omitzero"`
	Repeated bool      `json:"repeated"` // the policy is still the same
}

// Explain explains the verdict of p on the call of an entry.
func Explain(e *callrecord.Entry, p *policy.Snapshot) Explanation {
	x := Explanation{Then: Then{
		Time: e.Time, ID: cmp.Or(e.ID, e.Ref), Verdict: VerdictOf(e), Rule: e.Rule, Policies: e.Policies, Snapshot: e.Snapshot, Outcome: e.Outcome, Repeated: e.Snapshot == p.ID(),
	}}
	c := e.Call()
	if !e.HasArguments() {
		x.Explanation = p.ExplainWithoutArguments(c)
	} else {
		x.Explanation = p.Explain(c)
	}
	if !x.Unknown {
		x.Otherwise = p.Otherwise(c)
	}
	for i := range x.Policies {
		if x.Policies[i].Error != "" {
			x.Policies[i].Error = "it cannot be evaluated for this call" // the error may have values
		}
	}
	return x
}

// Text returns the explanation for a terminal.
func (x *Explanation) Text() string {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", label, fmt.Sprintf(format, args...))
	}
	t := &x.Then
	by := cmp.Or(t.Rule, "nothing")
	if len(t.Policies) > 0 {
		by += " with " + strings.Join(t.Policies, ", ")
	}
	line("recorded", "%s %s: %s by %s; it was %s", t.Time.Local().Format(time.RFC3339), name(t.ID), t.Verdict, name(by), cmp.Or(name(t.Outcome), "not ended"))
	if t.Repeated {
		line("policy", "%s, as then", t.Snapshot)
	} else {
		line("policy", "%s; then it was %s, so what follows may differ from the record", x.Verdict.Snapshot, cmp.Or(name(t.Snapshot), "unknown"))
	}
	b.WriteString(x.Explanation.Text())
	b.WriteString(OtherwiseText(x.Otherwise))
	return b.String()
}

// OtherwiseText returns the lines about alternatives.
func OtherwiseText(all []policy.Alternative) string {
	var b strings.Builder
	for i, a := range all {
		label := ""
		if i == 0 {
			label = "otherwise"
		}
		fmt.Fprintf(&b, "%-10s %s by %s, %s\n", label, strings.TrimSpace(string(a.Action)+" "+a.Workflow), a.By, safetext.Name(a.If, maxIf))
	}
	return b.String()
}

// maxIf is the most characters of what would have to differ.
const maxIf = 300
