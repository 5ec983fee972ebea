package app_test

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/storage"
)

// tryCall sends the form of the page on which calls are tried.
func tryCall(t *testing.T, address string, fields url.Values) (int, string) {
	t.Helper()
	status, page, _ := request(t, http.DefaultClient, http.MethodPost, "http://"+address+"/try", fields.Encode(),
		"Authorization", "Bearer secret-of-the-operators", "Content-Type", "application/x-www-form-urlencoded")
	return status, page
}

func look(t *testing.T, address, path string) string {
	t.Helper()
	_, page, _ := request(t, http.DefaultClient, http.MethodGet, "http://"+address+path, "", "Authorization", "Bearer secret-of-the-operators")
	return page
}

var textarea = regexp.MustCompile(`(?s)<textarea id="(try-[a-z0-9-]+)"[^>]*>\n?(.*?)</textarea>`)

// fieldsOf returns the texts of a page with the form.
func fieldsOf(page string) map[string]string {
	all := map[string]string{}
	for _, m := range textarea.FindAllStringSubmatch(page, -1) {
		all[m[1]] = html.UnescapeString(m[2])
	}
	return all
}

// A call is tried against the running policy and an edited one, which has no effect: the page has the
// running policy and the arguments that approvers see of a held call, and nothing is recorded.
func TestTry(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	dir := t.TempDir()
	file, policies := "sqlite:"+filepath.Join(dir, "gate.db"), filepath.Join(dir, "p.cedar")
	writeText(t, policies, `permit (principal, action, resource) when { context.arguments has n && context.arguments.n < 3 };`)
	text := strings.Replace(holding(toolServer(t), file), "rules: [", "rules: [{match: 'get_*', name: reading, action: forward, reason: 'costs $$5: \"x\"'}, {match: 'cedar_*', action: policy, mode: observe}, ", 1) +
		"cedar: {policies: ['" + policies + "']}\nworkflows: {default: {redact: [arguments.password]}}\n"
	a, stop := start(t, text)
	created := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_x","arguments":{"path":"/srv","password":"Xylophone"},"task":{}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	at := a.OperatorAddr()
	if page := look(t, at, "/approvals/"+id); !strings.Contains(page, `href="/try?call=`+id+`"`) {
		t.Error("the page of a held call has no link to try it")
	}
	page := look(t, at, "/try?call="+id)
	given := fieldsOf(page)
	if strings.Contains(page, "Xylophone") || strings.Contains(page, "secret-of-the-operators") || given["try-arguments"] != `{"path":"/srv","password":"[redacted]"}` {
		t.Errorf("%s", page)
	}
	other := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_y","arguments":{"path":"/srv"},"task":{}}`)
	_, rest, _ = strings.Cut(other, `"taskId":"`)
	readable, _, _ := strings.Cut(rest, `"`)
	if page := look(t, at, "/try?call="+readable); !strings.Contains(page, "Held for default") || strings.Contains(page, `id="compared"`) {
		t.Errorf("the page does not say why the call is held: %s", page)
	}
	fields := url.Values{
		"kind": {"tool"}, "upstream": {"default"}, "name": {"hold_x"}, "arguments": {given["try-arguments"]}, "rules": {given["try-rules"]},
		"cedar_name": {policies}, "cedar": {given["try-cedar-0"]},
	}
	with := func(changes ...string) url.Values {
		changed := url.Values{}
		maps.Copy(changed, fields)
		for i := 0; i < len(changes); i += 2 {
			changed.Set(changes[i], changes[i+1])
		}
		return changed
	}
	elsewhere := filepath.Join(dir, "elsewhere.cedar")
	writeText(t, elsewhere, "Glockenspiel")
	for name, test := range map[string]struct {
		fields url.Values
		status int
		want   []string
		lack   []string
	}{
		"unchanged":      {fields, 200, []string{"The edited policy is the running one", "Held for default", "without rules[2]"}, nil},
		"changed":        {with("rules", strings.Replace(given["try-rules"], "action: approve", "action: forward", 1)), 200, []string{"decides differently", "Held for default", "Forwarded"}, nil},
		"other default":  {with("rules", strings.Replace(given["try-rules"], "default: deny", "default: forward", 1)), 200, []string{"decides the same"}, nil},
		"Cedar":          {with("name", "cedar_x", "arguments", `{"n":3}`), 200, []string{"only observed", "context.arguments.n &lt; 3 is false"}, nil},
		"Cedar changed":  {with("name", "cedar_x", "arguments", `{"n":3}`, "cedar", "forbid (principal, action, resource);"), 200, []string{"Edited policy"}, nil},
		"Cedar error":    {with("cedar", "permit ("), 200, []string{"has errors", "not Cedar"}, nil},
		"unknown key":    {with("rules", "upstreams: []\ndefault: deny\n"), 200, []string{"has errors", "rules:1:1: upstreams"}, nil},
		"files":          {with("rules", "cedar: {policies: ['"+elsewhere+"']}\ndefault: deny\n"), 200, []string{"has errors"}, []string{"Glockenspiel"}},
		"name of a file": {with("cedar_name", elsewhere), 200, nil, []string{"Glockenspiel"}},
		"variables":      {with("rules", "rules: [{match: '${HOME}', action: deny}]\ndefault: deny\n", "name", os.Getenv("HOME")), 200, []string{"has errors", "braces"}, nil},
		"no YAML":        {with("rules", "a: ["), 200, []string{"has errors"}, nil},
		"arguments":      {with("arguments", "[1]"), 400, []string{"must be a JSON object"}, nil},
		"no name":        {with("name", ""), 400, []string{"Give the name"}, nil},
		"long":           {with("rules", strings.Repeat("#", 200<<10)), 400, []string{"too large"}, nil},
		"foreign text":   {with("name", "<b>\u202e", "rules", "default: forward"), 200, nil, []string{"<b>"}},
		"other method":   {with("kind", "x"), 200, []string{"unknown method"}, nil},
	} {
		status, page := tryCall(t, at, test.fields)
		if status != test.status {
			t.Errorf("%s: status %d; want %d: %s", name, status, test.status, page)
		}
		for _, want := range test.want {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page lacks %q", name, want)
			}
		}
		for _, lack := range test.lack {
			if strings.Contains(page, lack) {
				t.Errorf("%s: the page has %q", name, lack)
			}
		}
	}
	metrics := look(t, at, "/metrics")
	if strings.Contains(metrics, "cedar_x") {
		t.Error("a trial is counted")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if all := recorded(t, storage.Settings{DSN: file}); len(all) != 2 {
		t.Errorf("recorded %v; want only the held calls", summary(all))
	}
}

// A candidate that is made to be costly is refused, or judged in a moment.
func TestCostlyCandidates(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	a, stop := start(t, holding(toolServer(t), "memory:"))
	const size = 120 << 10
	repeat := func(text string, of int) string { return strings.Repeat(text, of/len(text)) }
	policy := func(condition string) string {
		return "permit (principal, action, resource) when { " + condition + " };"
	}
	rules := func(one string) string { return "rules:\n" + repeat(one+"\n", size) + "default: deny\n" }
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, "- {match: '*%dx*y*z*%d', action: policy}\n", i, i)
	}
	arguments := `{"n":"` + strings.Repeat("a", 15<<10) + `"}`
	for name, c := range map[string][2]string{
		"many rules":       {rules("- {match: a, action: deny}"), ""},
		"different rules":  {"rules:\n" + many.String() + "default: deny\n", policy("true")},
		"long pattern":     {"rules: [{match: '" + repeat("*a", size) + "', action: deny}]\ndefault: deny\n", ""},
		"two long ones":    {"rules: [{match: '" + repeat("*a", size/2) + "', action: deny}, {match: '" + repeat("a*?", size/2) + "', action: deny}]\ndefault: deny\n", ""},
		"nested YAML":      {"rules: " + repeat("[", size), ""},
		"flow":             {"rules: [" + repeat("{},", size) + "]", ""},
		"aliases":          {"rules: &a [*a,*a]\ndefault: deny\n", ""},
		"regular":          {"rules: [{match: '*', secrets: ['(" + repeat("a?", 4000) + "b){1000}'], action: deny}]\ndefault: deny\n", ""},
		"nested regular":   {"rules: [{match: '*', secrets: ['((a{10}){10}){10}b'], action: deny}]\ndefault: deny\n", ""},
		"large classes":    {"rules: [{match: '*', secrets: ['" + repeat(`\pL`, 60<<10) + "'], action: deny}]\ndefault: deny\n", ""},
		"parentheses":      {"default: deny", policy(repeat("(", size))},
		"negations":        {"default: deny", policy(repeat("!", size) + "true")},
		"conditions":       {"default: deny", policy(repeat("if true then ", size) + "true")},
		"and":              {"rules: [{match: '*', action: policy}]\ndefault: deny", policy("true" + repeat(" && context.arguments has n", size))},
		"or":               {"rules: [{match: '*', action: policy}]\ndefault: deny", policy("false" + repeat(" || context.arguments has x", size))},
		"plus":             {"rules: [{match: '*', action: policy}]\ndefault: deny", policy("1" + repeat(" + 1", size) + " == 2")},
		"members":          {"rules: [{match: '*', action: policy}]\ndefault: deny", policy("context" + repeat(".arguments", size) + " == 2")},
		"indexes":          {"rules: [{match: '*', action: policy}]\ndefault: deny", policy("context" + repeat(`["arguments"]`, size) + " == 2")},
		"calls":            {"rules: [{match: '*', action: policy}]\ndefault: deny", policy("[1]" + repeat(`.contains([1,1])`, size))},
		"repeated reason":  {"rules:\n- {match: '*', action: deny, reason: &r '" + repeat("x", size/2) + "'}\n" + repeat("- {match: a, action: deny, reason: *r}\n", size/2) + "default: deny\n", ""},
		"like":             {"rules: [{match: '*', action: policy}]\ndefault: deny", policy(`context.arguments.n like "` + repeat("*a", size) + `b"`)},
		"set":              {"rules: [{match: '*', action: policy}]\ndefault: deny", policy(`[` + repeat("1,", size) + `1].contains(2)`)},
		"many policies":    {"rules: [{match: '*', action: policy}]\ndefault: deny", repeat(policy("context.arguments has n && false")+"\n", size)},
		"strings of Cedar": {"default: deny", policy(repeat(`")" == (`, size))},
	} {
		begun := time.Now()
		_, page := tryCall(t, a.OperatorAddr(), url.Values{
			"kind": {"tool"}, "upstream": {"default"}, "name": {"get_x"}, "arguments": {arguments}, "rules": {c[0]}, "cedar_name": {"x"}, "cedar": {c[1]},
		})
		verdict := "other"
		for _, text := range []string{"has errors", "too large", "too deeply", "takes too long", "edited policy decides"} {
			if strings.Contains(page, text) {
				verdict = text
			}
		}
		t.Logf("%s: %v, %s", name, time.Since(begun).Round(time.Millisecond), verdict)
		if refused := verdict == "too large" || verdict == "too deeply"; (name == "indexes" || name == "calls" || name == "repeated reason") && !refused {
			t.Errorf("%s: %s; want a refusal", name, verdict)
		}
		if verdict == "other" || verdict == "takes too long" && time.Since(begun) < time.Second {
			t.Errorf("%s: %s: %.3000s", name, verdict, page)
		}
	}
	eventually(t, "another trial begins", func() bool {
		_, page := tryCall(t, a.OperatorAddr(), url.Values{"kind": {"tool"}, "upstream": {"default"}, "name": {"get_x"}, "rules": {"default: forward"}})
		return strings.Contains(page, "decides differently")
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
