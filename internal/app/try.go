package app

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/inbox"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/secrets"
	"github.com/thoughtgate/thoughtgate-go/internal/suggest"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// candidateName stands for the rules of a candidate in positions.
const candidateName = "rules"

// Bounds on a candidate, which somebody may have pasted without reading it.
const (
	maxRegexSize = 1000                   // of all regular expressions, in nodes of their syntax
	maxPatterns  = 24 << 10               // bytes of the conditions of all rules, which are compared with each other
	maxReasons   = 1 << 20                // bytes of the reasons of all rules, which aliases repeat
	maxNested    = 30                     // expressions of a Cedar policy inside each other
	slowVerdict  = 100 * time.Millisecond // after which no alternatives are looked for
)

// trials tries calls against the running policy and candidates. Nothing that it does has an effect.
type trials struct{ approvals *approvals }

// Running implements [inbox.Trials].
func (t trials) Running() (inbox.Candidate, []string, bool) {
	cfg := t.approvals.current.Load()
	if t.approvals.catalog.Policy() == nil || !hasPolicy(*cfg) {
		return inbox.Candidate{}, nil, false
	}
	var b strings.Builder
	if len(cfg.Rules) > 0 {
		b.WriteString("rules:\n")
	}
	for i := range cfg.Rules {
		b.WriteString("  " + suggest.YAML(&cfg.Rules[i]) + "\n")
	}
	fmt.Fprintf(&b, "default: %s\n", cfg.Default.Action)
	if cfg.Observe {
		b.WriteString("mode: observe\n")
	}
	c, err := PolicyConfig(*cfg)
	return inbox.Candidate{Rules: b.String(), Cedar: cfg.Cedar.Sources}, c.Upstreams, err == nil
}

// HeldCall implements [inbox.Trials]. The arguments are those that approvers see.
func (t trials) HeldCall(ctx context.Context, id task.ID) (policy.Call, error) {
	held, err := t.approvals.store.Get(ctx, task.AnyOwner().Ref(id))
	if err != nil {
		return policy.Call{}, err
	}
	shown, err := t.approvals.service.Viewer().ShowAll(ctx, id)
	f := review.ReadFacts(held)
	c := policy.Call{
		Upstream: held.Call.Upstream, Method: held.Call.Method, Name: held.Call.Name, Principal: f.Principal, Annotations: f.Annotations,
		Listed: held.Verdict.ToolDigest != "", Session: f.Session, Time: held.CreatedAt,
	}
	if shown.Arguments.Kind() == '{' {
		c.Arguments = shown.Arguments
	}
	return c, err
}

// Try implements [inbox.Trials].
func (t trials) Try(c policy.Call, candidate inbox.Candidate) inbox.Trial {
	var result inbox.Trial
	running := t.approvals.catalog.Policy()
	if running == nil {
		return result
	}
	c.Accepted = true // as if the tool were pinned
	result.Running = judgedBy(running, c)
	snapshot, warnings, err := t.compile(candidate)
	result.Warnings = warnings
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		for _, p := range wrong.Problems {
			result.Problems = append(result.Problems, p.String())
		}
	} else if err != nil {
		result.Problems = []string{err.Error()}
	} else {
		result.Same = snapshot.ID() == running.ID()
		result.Candidate = judgedBy(snapshot, c)
	}
	return result
}

func judgedBy(p *policy.Snapshot, c policy.Call) *inbox.Judged {
	begun := time.Now()
	j := &inbox.Judged{Explanation: p.Explain(c)}
	if time.Since(begun) < slowVerdict {
		j.Otherwise = p.Otherwise(c)
	}
	return j
}

// compile compiles a candidate. It reads no files.
func (t trials) compile(c inbox.Candidate) (*policy.Snapshot, []string, error) {
	given, origins, err := config.ParsePolicy(candidateName, []byte(c.Rules))
	if err != nil {
		return nil, nil, err
	}
	if err := tooCostly(given.Rules, c.Cedar); err != nil {
		return nil, nil, err
	}
	cfg := *t.approvals.current.Load()
	cfg.Rules, cfg.Default, cfg.Observe, cfg.Cedar.Sources, cfg.Origins = given.Rules, given.Default, given.Observe, c.Cedar, origins
	source, err := PolicyConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	snapshot, doubts, err := policy.Compile(source)
	if wrong, ok := errors.AsType[*policy.Error](err); ok {
		return nil, nil, config.NewError(located(cfg, wrong.Problems))
	}
	var warnings []string
	for _, d := range located(cfg, doubts) {
		warnings = append(warnings, d.String())
	}
	return snapshot, warnings, err
}

// tooCostly refuses candidates that would take much memory or time: many long patterns, regular
// expressions that repeat others, and Cedar policies with deeply nested expressions.
func tooCostly(rules []policy.Rule, sources []policy.Source) error {
	size, patterns, reasons := 0, 0, 0
	for _, r := range rules {
		patterns += len(r.Match) + len(r.Upstream)
		reasons += len(r.Reason)
		for _, text := range r.Principals {
			patterns += len(text)
		}
		for _, text := range r.Secrets {
			if text == secrets.Known || text == secrets.Likely {
				continue
			}
			if tree, err := syntax.Parse(text, syntax.Perl); err == nil { // otherwise Compile reports it
				size += regexSize(tree)
			}
		}
	}
	if patterns > maxPatterns {
		return errors.New("the patterns in the rules are too large to be tried here; use thoughtgate explain")
	}
	if reasons > maxReasons {
		return errors.New("the reasons in the rules are too large to be tried here; use thoughtgate explain")
	}
	if size > maxRegexSize {
		return errors.New("the regular expressions in secrets are too large to be tried here; use thoughtgate explain")
	}
	for _, s := range sources {
		if deeplyNested(s.Text) {
			return fmt.Errorf("the policies in %s are nested too deeply to be tried here", s.Name)
		}
	}
	return nil
}

// regexSize estimates the size of a compiled regular expression.
func regexSize(r *syntax.Regexp) int {
	size := 1 + len(r.Rune)/8
	for _, sub := range r.Sub {
		size += regexSize(sub)
	}
	if r.Op == syntax.OpRepeat {
		size *= max(r.Min, r.Max, 1)
	}
	return min(size, maxRegexSize+1)
}

// cedarToken matches what hides others in Cedar: strings and comments; what nests: brackets,
// members, operators before an expression, and conditions; and what separates operands.
var cedarToken = regexp.MustCompile(`"(?:\\.|[^"\\])*"|//[^\n]*|[(\[{}\])]|[.!-]|\bif\b|[;,]|&&|\|\|`)

// deeplyNested reports whether a text has many brackets, members, operators or conditions inside
// each other. It may count too many.
func deeplyNested(text []byte) bool {
	rows, conditions := []int{0}, 0 // the members and operators of an operand, also of those around it
	for _, at := range cedarToken.FindAll(text, -1) {
		row := &rows[len(rows)-1]
		switch string(at) {
		case "(", "{":
			rows = append(rows, 0)
		case "[": // of a set or a member
			*row++
			rows = append(rows, 0)
		case ")", "]", "}":
			rows = rows[:max(len(rows)-1, 1)]
		case ";":
			*row, conditions = 0, 0
		case ",", "&&", "||":
			*row = 0
		case "!", "-", ".":
			*row++
		case "if":
			conditions++
		}
		if max(len(rows)-1, rows[len(rows)-1], conditions) > maxNested {
			return true
		}
	}
	return false
}

// Suggestions read the record of calls.
const (
	suggestDays     = 30
	maxHeldBytes    = 32 << 20 // arguments that are kept meanwhile
	suggestPatience = 10 * time.Second
)

// suggest proposes rules from the calls of the last days. It uses one core, and ends with an error
// if there are too many calls.
func (ap *approvals) suggest(ctx context.Context) (*suggest.Report, error) {
	cfg := ap.current.Load()
	if ap.catalog.Policy() == nil || !hasPolicy(*cfg) {
		return nil, suggest.ErrNoCalls
	}
	source, err := PolicyConfig(*cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, suggestPatience, inbox.ErrTooMany)
	defer cancel()
	f := callrecord.Filter{Since: time.Now().AddDate(0, 0, -suggestDays)}
	r, err := suggest.From(ctx, source, 1, f, func(f callrecord.Filter) iter.Seq2[callrecord.Entry, error] {
		return limited(callrecord.All(ctx, ap.store.Store, f))
	})
	if err != nil && errors.Is(context.Cause(ctx), inbox.ErrTooMany) {
		err = inbox.ErrTooMany
	}
	return r, err
}

// limited returns entries until their held calls have too many arguments.
func limited(all iter.Seq2[callrecord.Entry, error]) iter.Seq2[callrecord.Entry, error] {
	return func(yield func(callrecord.Entry, error) bool) {
		bytes := 0
		for e, err := range all {
			if e.Action == policy.Approve {
				bytes += len(e.Arguments)
			}
			if bytes > maxHeldBytes && err == nil {
				err = inbox.ErrTooMany
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
