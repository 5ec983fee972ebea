package policy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/goccy/go-yaml"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

func readDocs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func blocks(t *testing.T, language string, least int) []string {
	t.Helper()
	found := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(readDocs(t), -1)
	if len(found) < least {
		t.Fatalf("found only %d examples of %s", len(found), language)
	}
	var texts []string
	for _, b := range found {
		texts = append(texts, b[1])
	}
	return texts
}

// workflows are the workflows that the samples name.
func workflows() map[string]policy.Workflow {
	return map[string]policy.Workflow{
		"default": {Quorum: 1, Timeout: time.Hour}, "ops": {Quorum: 1, Timeout: time.Hour},
		"finance": {Quorum: 2, Timeout: time.Hour}, "sales-leads": {Quorum: 1, Timeout: time.Hour},
	}
}

// file is the part of a configuration file that the examples show.
type file struct {
	Mode      string
	Rules     []docRule
	Default   docRule
	Workflows map[string]struct {
		Quorum  int
		Timeout time.Duration
		Redact  []string
	}
	Cedar struct{ Policies []string }
}

type docRule struct {
	Match, Action, Workflow, Reason, Upstream, Kind, Mode string
	Principals, Secrets                                   []string
}

// UnmarshalYAML accepts a single action, as the default allows.
func (r *docRule) UnmarshalYAML(text []byte) error {
	type plain docRule
	if err := yaml.UnmarshalWithOptions(text, &r.Action); err == nil {
		return nil
	}
	return yaml.UnmarshalWithOptions(text, (*plain)(r), yaml.Strict())
}

func (r docRule) rule() policy.Rule {
	return policy.Rule{
		Match: r.Match, Action: policy.Action(r.Action), Workflow: r.Workflow, Reason: r.Reason,
		Upstream: r.Upstream, Kind: policy.Kind(r.Kind), Principals: r.Principals, Secrets: r.Secrets, Mode: policy.Mode(r.Mode),
	}
}

func TestRulesInDocsCompile(t *testing.T) {
	for _, text := range blocks(t, "yaml", 3) {
		if strings.HasPrefix(text, "tests:") {
			continue // the command runs it
		}
		var f file
		if err := yaml.UnmarshalWithOptions([]byte(text), &f, yaml.Strict()); err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		cfg := policy.Config{Default: f.Default.rule(), Observe: f.Mode == "observe", Workflows: map[string]policy.Workflow{}}
		for _, r := range f.Rules {
			cfg.Rules = append(cfg.Rules, r.rule())
		}
		for name, w := range f.Workflows {
			cfg.Workflows[name] = policy.Workflow{Quorum: max(1, w.Quorum), Timeout: w.Timeout}
		}
		for _, name := range f.Cedar.Policies {
			source, err := os.ReadFile(filepath.Join("../..", name))
			if err != nil {
				t.Fatal(err)
			}
			cfg.Cedar = append(cfg.Cedar, policy.Source{Name: name, Text: source})
		}
		if _, warnings, err := policy.Compile(cfg); err != nil || len(warnings) > 0 {
			t.Errorf("%v %v\n%s", err, warnings, text)
		}
	}
}

func TestPoliciesInDocsCompile(t *testing.T) {
	for _, text := range blocks(t, "cedar", 1) {
		s := compile(t, policy.Config{
			Default: policy.Rule{Action: policy.AskPolicies}, Workflows: workflows(),
			Cedar: []policy.Source{{Name: "docs", Text: []byte(text)}},
		})
		call := toolCall("place_order")
		call.Principal.Groups = []string{"sales"}
		for arguments, want := range map[string]string{`{"quantity":3}`: "forward", `{"quantity":30}`: "approve sales-leads", `{}`: "deny"} {
			call.Arguments = []byte(arguments)
			if got := short(s.Judge(call)); got != want {
				t.Errorf("%s: %s, want %s", arguments, got, want)
			}
		}
	}
}

// TestMappingInDocs compares the table of JSON and Cedar values in the docs with the
// implementation.
func TestMappingInDocs(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `(.+)` \\| (`(.+)`|denied) \\|$").FindAllStringSubmatch(section(t, "### Arguments"), -1)
	if len(rows) < 15 {
		t.Fatalf("found only %d rows", len(rows))
	}
	for _, row := range rows {
		record, err := policy.MapAll([]byte(`{"v":` + row[1] + `}`))
		if row[2] == "denied" || err != nil {
			if row[2] != "denied" || err == nil {
				t.Errorf("%s: %v, want %s", row[1], err, row[2])
			}
			continue
		}
		got, _ := record.Get("v")
		if want := cedarValue(t, row[3]); !got.Equal(want) {
			t.Errorf("%s: %s, want %s", row[1], got.MarshalCedar(), want.MarshalCedar())
		}
	}
}

func section(t *testing.T, title string) string {
	t.Helper()
	_, text, found := strings.Cut(readDocs(t), title+"\n")
	if !found {
		t.Fatalf("the section %s is missing", title)
	}
	return text
}

// cedarValue evaluates a Cedar expression.
func cedarValue(t *testing.T, text string) types.Value {
	t.Helper()
	var p cedar.Policy
	if err := p.UnmarshalCedar([]byte("permit (principal, action, resource) when { " + text + " };")); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	v, err := eval.Eval(p.AST().Conditions[0].Body, eval.Env{Entities: types.EntityMap{}})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// The table of the context in the docs matches the schema.
func TestContextInDocs(t *testing.T) {
	var text schema.Schema
	if err := text.UnmarshalCedar(policy.Schema()); err != nil {
		t.Fatal(err)
	}
	s, err := text.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(context\\.[a-zA-Z.]+)` \\|").FindAllStringSubmatch(readDocs(t), -1) {
		documented[row[1]] = true
	}
	context := s.Actions[types.NewEntityUID("ThoughtGate::Action", "call")].AppliesTo.Context
	for name := range leaves("context", context) {
		if !documented[name] {
			t.Errorf("%s is not in the docs", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is in the docs only", name)
	}
	for entity := range s.Entities {
		if !strings.Contains(readDocs(t), string(entity)) {
			t.Errorf("%s is not in the docs", entity)
		}
	}
}

func leaves(path string, record resolved.RecordType) map[string]bool {
	found := map[string]bool{}
	for name, a := range record {
		inner, ok := a.Type.(resolved.RecordType)
		if !ok || len(inner) == 0 {
			found[path+"."+string(name)] = true
			continue
		}
		for leaf := range leaves(path+"."+string(name), inner) {
			found[leaf] = true
		}
	}
	return found
}

func sample(t *testing.T, names ...string) *policy.Snapshot {
	t.Helper()
	cfg := policy.Config{Default: policy.Rule{Action: policy.AskPolicies}, Workflows: workflows()}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("../../docs/policies", name))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Cedar = append(cfg.Cedar, policy.Source{Name: name, Text: text})
	}
	s, warnings, err := policy.Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		t.Error(w)
	}
	return s
}

func TestSamplesCompileTogether(t *testing.T) {
	files, err := filepath.Glob("../../docs/policies/*.cedar")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d samples: %v", len(files), err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	sample(t, files...)
}

// TestSamples tests the samples besides refunds.cedar, which has refunds_test.yaml.
func TestSamples(t *testing.T) {
	yes, no := true, false
	day := time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)   // a Tuesday
	night := time.Date(2026, 11, 3, 18, 0, 0, 0, time.UTC) // the first minute of the night
	sunday := time.Date(2026, 11, 8, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		file, upstream, tool, arguments string
		groups                          string
		annotations                     policy.Annotations
		time                            time.Time
		want, by                        string
	}{
		{file: "destructive.cedar", tool: "x", want: "approve default", by: "destroys"},
		{file: "destructive.cedar", tool: "x", annotations: policy.Annotations{ReadOnly: &yes}, want: "forward", by: "reads"},
		{file: "destructive.cedar", tool: "x", annotations: policy.Annotations{Destructive: &no}, want: "forward", by: "changes"},
		{file: "destructive.cedar", tool: "x", annotations: policy.Annotations{ReadOnly: &yes, Destructive: &yes}, want: "approve default", by: "destroys reads"},

		{file: "hours.cedar", tool: "deploy", time: day, want: "approve ops", by: "deploy"},
		{file: "hours.cedar", tool: "deploy", time: night, want: "deny", by: "deploy-quiet-hours"},
		{file: "hours.cedar", tool: "deploy", time: sunday, want: "deny", by: "deploy-quiet-hours"},
		{file: "hours.cedar", tool: "deploy", time: sunday, groups: "oncall", want: "approve ops", by: "deploy"},

		{file: "groups.cedar", tool: "delete_user", upstream: "crm", want: "forward", by: "crm"},
		{file: "groups.cedar", tool: "delete_user", upstream: "crm", groups: "contractors", want: "deny", by: "crm-contractors"},
		{file: "groups.cedar", tool: "get_user", upstream: "crm", groups: "contractors", want: "forward", by: "crm"},
		{file: "groups.cedar", tool: "get_user", upstream: "files", want: "deny"},

		{file: "paths.cedar", tool: "read_file", upstream: "files", arguments: `{"path":"/data/a"}`, want: "forward", by: "files-read"},
		{file: "paths.cedar", tool: "write_file", upstream: "files", arguments: `{"path":"/data/a","content":1e999}`, want: "approve default", by: "files-write"},
		{file: "paths.cedar", tool: "read_file", upstream: "files", arguments: `{"path":"/data/../etc/passwd"}`, want: "deny", by: "files-dots"},
		{file: "paths.cedar", tool: "read_file", upstream: "files", arguments: `{"path":"/data/key.pem"}`, want: "deny", by: "files-secrets"},
		{file: "paths.cedar", tool: "read_file", upstream: "files", arguments: `{"path":"/etc/passwd"}`, want: "deny"},
	}
	for _, tt := range tests {
		call := policy.Call{
			Upstream: tt.upstream, Method: "tools/call", Name: tt.tool, Arguments: []byte(tt.arguments), Annotations: tt.annotations, Time: tt.time,
			Principal: policy.Principal{ID: "alice", Groups: strings.Fields(tt.groups)},
		}
		v := sample(t, tt.file).Judge(call)
		if short(v) != tt.want || strings.Join(v.Policies, " ") != tt.by {
			t.Errorf("%s %s %s: %s by %v (%s), want %s by %s", tt.file, tt.tool, tt.arguments, short(v), v.Policies, v.Reason, tt.want, tt.by)
		}
	}
	anonymous := policy.Call{Upstream: "crm", Method: "resources/read", Name: "crm://users", Principal: policy.Principal{Anonymous: true}}
	if v := sample(t, "groups.cedar").Judge(anonymous); short(v) != "deny" {
		t.Errorf("anonymous: %s", v.Reason)
	}
}
