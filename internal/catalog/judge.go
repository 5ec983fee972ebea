package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// ErrUnnamed reports a governed message without the name or URI of its subject.
var ErrUnnamed = errors.New("the message has no name or URI of its subject")

// ErrMisspelled reports a method that the upstream may take for a governed one.
var ErrMisspelled = errors.New("the method is a misspelling of one that policy controls")

// ErrTooLong reports a message whose subject has a name that is too long for rules.
var ErrTooLong = errors.New("the name is too long")

// A Judgement is the verdict of policy about a message, and how the gate handles the message.
type Judgement struct {
	Verdict  policy.Verdict
	Handling policy.Handling
	Kind     policy.Kind
	Name     string // of the tool or prompt, or the URI of the resource
	Tool     Tool   // if it is one; with its definition if that is known
	Session  policy.Session
	Call     policy.Call // as it was put to policy
}

// RequestInfo has the claims of a message about its client. They are not verified.
type RequestInfo struct {
	Task    policy.TaskWish // how the client can wait for a held call
	Session policy.Session  // zero if the message names no client; then the handshake counts
}

// session returns the session for policy.
func (c RequestInfo) session(handshake Handshake) policy.Session {
	said := c.Session
	if said == (policy.Session{}) {
		return handshake.Session
	}
	return policy.Session{Client: truncate(said.Client), Version: truncate(said.Version), Protocol: truncate(said.Protocol)}
}

// Judge asks policy about m. Messages that policy does not govern pass. The error is
// [ErrUnnamed], [ErrMisspelled] or [ErrTooLong], or describes another defect of the message.
func (g *Catalog) Judge(ctx context.Context, c Client, m *jsonrpc.Message, info RequestInfo) (Judgement, error) {
	kind, governed := policy.Governed(m.Method)
	if !governed {
		return g.judgeReferences(ctx, c, m, info.Session)
	}
	name, ok := subject(kind, m)
	if !ok {
		return Judgement{}, ErrUnnamed
	}
	return g.ask(ctx, c, question{kind: kind, method: m.Method, name: name, arguments: m.Params.Arguments.Bytes}, info)
}

// Recheck asks the current policy about a call that was judged before.
func (g *Catalog) Recheck(c policy.Call) policy.Verdict { return g.settings.Load().Policy.Judge(c) }

// A question is the part of a message that policy judges.
type question struct {
	kind      policy.Kind
	method    string
	name      string
	template  bool // whether name is a template of URIs
	arguments []byte
}

// ask asks policy one question. Only this function adds the cached data about the client and the
// tool.
func (g *Catalog) ask(ctx context.Context, c Client, q question, info RequestInfo) (Judgement, error) {
	//mutate:false internal/mcphttp.TestLongNamesAreRefused a tool with a long name is judged
	if policy.TooLong(q.kind, q.name) {
		return Judgement{}, ErrTooLong
	}
	s := g.settings.Load()
	handshake, listed, _ := g.cache.lookup(c, q.name)
	if q.kind != policy.Tool {
		listed = Tool{}
	}
	j := Judgement{Kind: q.kind, Name: q.name, Session: info.session(handshake)}
	call := policy.Call{
		Upstream:  c.Upstream,
		Method:    q.method,
		Name:      q.name,
		Template:  q.template,
		Arguments: q.arguments,
		Principal: c.Principal,
		Session:   j.Session,
		Time:      g.now(),
	}
	for consulted := false; ; consulted = true {
		var known bool
		j.Tool, known = g.trusted(c, listed)
		call.Annotations, call.Listed, call.Changed = j.Tool.Annotations, known, j.Tool.Change != nil
		call.Digest, call.Accepted = g.pin(s.Policy, c, listed)
		j.Verdict = s.Policy.Judge(call)
		if known && !j.Verdict.Changed {
			j.Tool = listed // unchanged, or policy does not depend on its hints
		}
		if consulted || !g.consult(ctx, c, listed, known, j.Verdict) {
			break
		}
	}
	if q.kind == policy.Tool {
		j.Tool.Name, j.Tool.Accepted = q.name, call.Accepted
	}
	if v := j.Verdict; v.Unpinned && v.Action == policy.Approve {
		j.Tool.Change = new(g.unpinned(c, listed, q.name).Change(c.source(), q.name))
	}
	j.Call = call
	j.Handling = s.terms(q.kind, j.Tool, handshake).Handle(j.Verdict.Action, info.Task)
	g.report(ctx, c, j)
	return j, nil
}

// subject returns the name or URI that m is about.
func subject(kind policy.Kind, m *jsonrpc.Message) (string, bool) {
	if kind == policy.Resource {
		return m.Params.URI.Text()
	}
	return m.Params.Name.Text()
}

// handledMethods are the methods that the gate handles besides those that policy governs.
var handledMethods = map[string]bool{
	mcpname.CompletionComplete: true, mcpname.SubscriptionsListen: true, mcpname.Initialize: true, mcpname.ServerDiscover: true, mcpname.NotifyCancelled: true,
	mcpname.ToolsList: true, mcpname.PromptsList: true, mcpname.ResourcesList: true, mcpname.ResourcesTemplatesList: true,
}

// misspelled reports whether a lenient upstream may take a method for another one that the gate
// handles.
func misspelled(method string) bool {
	plain := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || policy.Invisible(r) {
			return -1
		}
		return r
	}, norm.NFKC.String(method))
	plain = strings.ToLower(plain)
	if plain == method {
		return false
	}
	_, governed := policy.Governed(plain)
	return governed || handledMethods[plain] || strings.HasPrefix(plain, "tasks/")
}

// judgeReferences judges a message whose method policy does not govern. It refuses a misspelled
// method. It asks policy about each prompt, resource and template that the message refers to.
// The message is forwarded only if policy forwards requests for all of them. A message of this
// kind cannot be held, so it is refused where others are held.
func (g *Catalog) judgeReferences(ctx context.Context, c Client, m *jsonrpc.Message, claimed policy.Session) (Judgement, error) {
	if misspelled(m.Method) {
		return Judgement{}, ErrMisspelled
	}
	questions, err := references(m)
	if err != nil {
		return Judgement{}, err
	}
	for _, q := range questions {
		j, err := g.ask(ctx, c, q, RequestInfo{Task: policy.NoTask, Session: claimed})
		if err != nil {
			return Judgement{}, err
		}
		if j.Handling != policy.PassOn {
			j.Handling = policy.RefuseDenied
			return j, nil
		}
	}
	return Judgement{Handling: policy.PassOn}, nil
}

// references returns the subjects that m refers to.
func references(m *jsonrpc.Message) ([]question, error) {
	switch m.Method {
	case mcpname.CompletionComplete:
		ref := m.Params.Member("ref")
		if hasMisspelledMember(m.Params.Value, "ref") || hasMisspelledMember(ref, "type", "name", "uri") {
			return nil, ErrUnnamed
		}
		return completed(ref)
	case mcpname.SubscriptionsListen:
		wanted := m.Params.Member("notifications")
		if hasMisspelledMember(m.Params.Value, "notifications") || hasMisspelledMember(wanted, "resourceSubscriptions") {
			return nil, ErrUnnamed
		}
		return subscribed(wanted.Member("resourceSubscriptions"))
	default:
		return nil, nil
	}
}

// hasMisspelledMember reports whether an object has a member that differs from a given name only
// by case. Some upstreams ignore case.
func hasMisspelledMember(object jsonrpc.Value, names ...string) bool {
	for member := range object.Members() {
		for _, name := range names {
			if member != name && strings.EqualFold(member, name) {
				return true
			}
		}
	}
	return false
}

// completed returns the prompt or template whose arguments are completed.
func completed(ref jsonrpc.Value) ([]question, error) {
	kind, _ := ref.Member("type").Text()
	q, ok := question{kind: policy.Resource, method: mcpname.ResourcesRead, template: true}, false
	switch kind {
	case "ref/prompt":
		q = question{kind: policy.Prompt, method: mcpname.PromptsGet}
		q.name, ok = ref.Member("name").Text()
	case "ref/resource":
		q.name, ok = ref.Member("uri").Text()
	}
	if !ok {
		return nil, ErrUnnamed
	}
	return []question{q}, nil
}

// maxSubscriptions is how many resources one message may subscribe to, because policy judges
// each.
const maxSubscriptions = 1000

var errTooMany = fmt.Errorf("the message subscribes to more than %d resources", maxSubscriptions)

// subscribed returns the resources in a list of URIs.
func subscribed(uris jsonrpc.Value) ([]question, error) {
	if !uris.Present() {
		return nil, nil
	}
	if !uris.IsArray() {
		return nil, ErrUnnamed
	}
	var questions []question
	for element := range uris.Elements() {
		uri, ok := element.Text()
		if !ok {
			return nil, ErrUnnamed
		}
		//mutate:false internal/mcphttp.TestManySubscriptionsAreRefused a message subscribes to any number of resources
		if len(questions) == maxSubscriptions {
			return nil, errTooMany
		}
		questions = append(questions, question{kind: policy.Resource, method: mcpname.ResourcesSubscribe, name: uri})
	}
	return questions, nil
}

// limited returns the context of a log line about the verdict v. Lines with the same principal,
// rule and listed tool are limited. A held call has further lines, which are not limited.
func limited(ctx context.Context, c Client, j Judgement, v policy.Verdict) context.Context {
	reason, source := string(v.Action)+" by "+cmp.Or(v.Label, "default"), "anonymous"
	if j.Tool.DigestText() != "" {
		reason += ": " + truncateCopy(j.Name)
	}
	if !c.Principal.Anonymous {
		source = c.Principal.ID
	}
	return logging.Limited(ctx, reason, source)
}

// terms returns the conditions under which calls of a tool become tasks. Other subjects never do.
func (s *Settings) terms(kind policy.Kind, t Tool, handshake Handshake) policy.TaskTerms {
	if kind != policy.Tool {
		return policy.TaskTerms{}
	}
	return policy.TaskTerms{
		Declared: policy.TaskSupport(t.TaskSupport),
		Upstream: handshake.Tasks,
		Strict:   s.TasksOnly,
		Forced:   slices.Contains(s.ForceRequired, t.Name),
	}
}

// report counts and logs a verdict. Forwarding is logged at level debug. Agents can cause denials
// and refused holds at will, so these lines are limited.
func (g *Catalog) report(ctx context.Context, c Client, j Judgement) {
	v := j.Verdict
	observed := v.Would != nil
	if observed {
		v = *v.Would
	}
	//mutate:drop internal/app.TestEachOutcomeMovesItsCounters denials are not counted
	g.metrics.Verdict(string(j.Kind), string(v.Action), observed)
	level := slog.LevelInfo
	if v.Action == policy.Forward {
		level = slog.LevelDebug
	}
	if !g.log.Enabled(ctx, level) {
		return
	}
	//mutate:swap "limited(ctx, c, j, v)" "ctx" internal/app.TestLogLinesCausedByClientsAreLimited denied calls fill the log
	g.log.LogAttrs(limited(ctx, c, j, v), level, "verdict",
		slog.String("action", string(v.Action)),
		slog.Bool("observed", observed),
		slog.String("kind", string(j.Kind)),
		slog.String("name", truncateCopy(j.Name)),
		slog.String("upstream", c.Upstream),
		slog.String("workflow", v.Workflow),
		slog.String("reason", v.Reason),
		slog.String("snapshot", v.Snapshot),
	)
}
