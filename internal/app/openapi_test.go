package app_test

import (
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The answers of a gate, while a call is held, approved and run, match the OpenAPI document
// that the gate serves.
func TestOpenAPI(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		result := `{"content":[{"type":"text","text":"done"}]}`
		if strings.Contains(string(body), "tools/list") {
			result = `{"tools":[{"name":"hold_x","title":"X","description":"Does x.","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true,"readOnlyHint":false}}]}`
		}
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":`+result+`}`)
	}))
	defer up.Close()
	defer http.DefaultClient.CloseIdleConnections()
	a, stop := start(t, strings.Replace(gatewayFor(up.URL), "operators: {", "operators: {token: secret-of-the-operators, ", 1)+
		"rules: [{match: 'hold_*', action: approve, reason: to be seen}]\ndefault: deny\n")
	d := describeGate(t, "http://"+a.OperatorAddr())

	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		d.get(t, path, path)
	}
	say(t, a.AgentAddr(), "tools/list", `{}`)
	created := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_x","arguments":{"a":1},"task":{}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	d.get(t, "/api/approvals", "/api/approvals")
	if shown := d.get(t, "/api/approvals/{id}", "/api/approvals/"+id); !strings.Contains(shown, `"hints":{`) || !strings.Contains(shown, `"agent":{`) {
		t.Errorf("shown: %s; want hints of the tool, and the agent", shown)
	}
	d.valid(t, "post", "/api/approvals/{id}/approve", "application/json", approve(t, a.OperatorAddr(), id))
	say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`)
	if shown := d.get(t, "/api/approvals/{id}", "/api/approvals/"+id); !strings.Contains(shown, `"result":{`) {
		t.Errorf("shown: %s; want the result", shown)
	}
	d.get(t, "/api/approvals", "/api/approvals?state=all")
	d.get(t, "/api/audit/ends", "/api/audit/ends")
	if journal := d.get(t, "/api/audit", "/api/audit"); strings.Count(journal, "\n") < 6 {
		t.Errorf("journal: %s", journal)
	}
	eventually(t, "the calls are recorded", func() bool {
		return strings.Count(d.get(t, "/api/calls", "/api/calls"), "\n") == 2
	})
	d.get(t, "/api/calls/explanation", "/api/calls/explanation?id="+id)
	d.get(t, "/api/calls/verification", "/api/calls/verification")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// A description is the document that a gate serves as /api/openapi.json.
type description struct {
	gate     string
	compiler *jsonschema.Compiler
}

func describeGate(t *testing.T, gate string) description {
	t.Helper()
	_, text, _ := request(t, http.DefaultClient, "GET", gate+"/api/openapi.json", "", "Authorization", "Bearer secret-of-the-operators")
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", value); err != nil {
		t.Fatal(err)
	}
	return description{gate, c}
}

// get requests a URL, and returns the answer, which must match the description of path.
func (d description) get(t *testing.T, path, url string) string {
	t.Helper()
	status, body, header := request(t, http.DefaultClient, "GET", d.gate+url, "", "Authorization", "Bearer secret-of-the-operators")
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d %s (%v)", url, status, body, err)
	}
	d.valid(t, "get", path, kind, body)
	return body
}

// valid requires that body matches the described success response of a request.
func (d description) valid(t *testing.T, method, path, kind, body string) {
	t.Helper()
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	schema, err := d.compiler.Compile("openapi.json#/paths/" + escape.Replace(path) + "/" + method + "/responses/200/content/" + escape.Replace(kind) + "/schema")
	if err != nil {
		t.Fatal(err)
	}
	values := []any{body}
	if kind != "text/plain" {
		values = nil
		for line := range strings.Lines(body) {
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
	}
	for _, value := range values {
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s %s: %v: %s", method, path, err, body)
		}
	}
}
