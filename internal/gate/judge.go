package gate

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// ErrUnnamed reports a governed message that does not say what it is about.
var ErrUnnamed = errors.New("the message does not name its subject")

// ErrMisspelled reports a method that the upstream may take for another one,
// which is governed.
var ErrMisspelled = errors.New("the method is a misspelling of one that policy controls")

// A Judgement says what becomes of a message, and why.
type Judgement struct {
	Verdict  policy.Verdict
	Handling policy.Handling
	Kind     policy.Kind
	Name     string // of the tool or prompt, or the URI of the resource
	Tool     Tool   // if it is one, with what the upstream says of it if it was listed
	Session  policy.Session
}

// Claims are what a message says of the client that sent it. They prove nothing.
type Claims struct {
	Wish    policy.TaskWish // how the client can wait
	Session policy.Session  // zero if the message says nothing: then what the client said when it met the upstream counts
}

// session returns what counts of what the client says of itself.
func (c Claims) session(facts Facts) policy.Session {
	said := c.Session
	if said == (policy.Session{}) {
		return facts.Session
	}
	return policy.Session{Client: beginning(said.Client), Version: beginning(said.Version), Protocol: beginning(said.Protocol)}
}

// Judge asks policy about m, which makes some claims. Messages that are no business of
// policy's pass. The error is [ErrUnnamed] or [ErrMisspelled].
func (g *Gate) Judge(ctx context.Context, c Client, m *jsonrpc.Message, claims Claims) (Judgement, error) {
	kind, governed := policy.Governed(m.Method)
	if !governed {
		return g.judgeReferences(ctx, c, m, claims.Session)
	}
	name, ok := subject(kind, m)
	if !ok {
		return Judgement{}, ErrUnnamed
	}
	return g.judge(ctx, c, question{method: m.Method, name: name, arguments: m.Params.Arguments.Bytes}, claims), nil
}

// A question is what policy is asked about.
type question struct {
	method    string
	name      string
	template  bool // whether name is a template of URIs
	arguments []byte
}

// judge asks policy one question.
func (g *Gate) judge(ctx context.Context, c Client, q question, claims Claims) Judgement {
	kind, _ := policy.Governed(q.method)
	name := q.name
	s := g.settings.Load()
	j := Judgement{Kind: kind, Name: name}
	facts, tool := g.catalog.recall(c, name)
	if kind == policy.Tool {
		j.Tool = tool
		j.Tool.Name = name
	}
	j.Session = claims.session(facts)
	j.Verdict = s.judge(policy.Call{
		Upstream:    c.Upstream,
		Method:      q.method,
		Name:        name,
		Template:    q.template,
		Arguments:   q.arguments,
		Principal:   c.Principal,
		Annotations: j.Tool.Annotations,
		Listed:      j.Tool.DigestText() != "",
		Session:     j.Session,
		Time:        g.now(),
	})
	j.Handling = s.terms(kind, j.Tool, facts).Handle(j.Verdict.Action, claims.Wish)
	g.report(ctx, c, j)
	return j
}

// Recheck asks the policy that is in force now about a call that was judged
// before.
func (g *Gate) Recheck(c policy.Call) policy.Verdict {
	return g.settings.Load().judge(c)
}

func (s *Settings) judge(c policy.Call) policy.Verdict {
	if s.Policy == nil {
		// Somebody took all policy away while the call was on its way, or held;
		// what was to be judged is not forwarded for that.
		return policy.Verdict{Action: policy.Deny, Rule: policy.ByGate, Reason: "there is no policy any more"}
	}
	return s.Policy.Judge(c)
}

// subject returns the name or URI that m is about.
func subject(kind policy.Kind, m *jsonrpc.Message) (string, bool) {
	if kind == policy.Resource {
		return m.Params.URI.Text()
	}
	return m.Params.Name.Text()
}

// limited returns the context of a line about the verdict v. Of the lines about one
// principal, one rule and one tool that the upstream has listed, the log has one for
// a while. A call that is held has lines of its own, which have no limit.
func limited(ctx context.Context, c Client, j Judgement, v policy.Verdict) context.Context {
	reason, source := string(v.Action)+" by "+cmp.Or(v.Label, "default"), "anonymous"
	if j.Tool.DigestText() != "" {
		reason += ": " + shortened(j.Name)
	}
	if !c.Principal.Anonymous {
		source = c.Principal.ID
	}
	return logging.Limited(ctx, reason, source)
}

// terms returns what decides whether calls of a tool are tasks. Only tools can
// be tasks, so nothing is demanded of anything else.
func (s *Settings) terms(kind policy.Kind, t Tool, facts Facts) policy.TaskTerms {
	if kind != policy.Tool {
		return policy.TaskTerms{}
	}
	return policy.TaskTerms{
		Declared: policy.TaskSupport(t.TaskSupport),
		Upstream: facts.Tasks,
		Strict:   s.TasksOnly,
		Forced:   slices.Contains(s.ForceRequired, t.Name),
	}
}

// report counts and logs a verdict. Plain forwarding, which is nearly everything, is
// logged at level debug. Agents can make calls that are denied as often as
// they like, or held beyond the limit, so the log has few lines of a flood of them,
// and how many there were.
func (g *Gate) report(ctx context.Context, c Client, j Judgement) {
	v := j.Verdict
	observed := v.Would != nil
	if observed {
		v = *v.Would
	}
	g.metrics.Verdict(string(j.Kind), string(v.Action), observed)
	level := slog.LevelInfo
	if v.Action == policy.Forward {
		level = slog.LevelDebug
	}
	if !g.log.Enabled(ctx, level) {
		return
	}
	g.log.LogAttrs(limited(ctx, c, j, v), level, "verdict",
		slog.String("action", string(v.Action)),
		slog.Bool("observed", observed),
		slog.String("kind", string(j.Kind)),
		slog.String("name", shortened(j.Name)),
		slog.String("upstream", c.Upstream),
		slog.String("workflow", v.Workflow),
		slog.String("reason", v.Reason),
		slog.String("snapshot", v.Snapshot),
	)
}
