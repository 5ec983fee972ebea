package api_test

import (
	"bytes"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A description is openapi.json, parsed.
type description struct {
	root     map[string]any
	compiler *jsonschema.Compiler
}

var described = sync.OnceValues(func() (description, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.OpenAPI()))
	if err != nil {
		return description{}, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	err = c.AddResource("openapi.json", value)
	return description{value.(map[string]any), c}, err
})

func readDescription(t *testing.T) description {
	t.Helper()
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// at returns the object at a path of keys, and follows references.
func (d description) at(keys ...string) map[string]any {
	value := d.root
	for _, key := range keys {
		value, _ = value[key].(map[string]any)
		if ref, ok := value["$ref"].(string); ok {
			value = d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
	}
	return value
}

// operations returns the method and path of every described operation.
func (d description) operations() []string {
	var all []string
	for path := range d.at("paths") {
		for method := range d.at("paths", path) {
			all = append(all, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(all)
	return all
}

// machines are described operations that package app serves, or that need no operator.
var machines = []string{"GET /healthz", "GET /metrics", "GET /readyz", "POST /api/channels/{channel}/decisions"}

// The description and the router have the same requests with the same roles.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	d := readDescription(t)
	want := append(slices.Sorted(maps.Keys(api.Routes())), machines...)
	slices.Sort(want)
	if diff := cmp.Diff(want, d.operations()); diff != "" {
		t.Errorf("routes (-served +described):\n%s", diff)
	}
	for pattern, role := range api.Routes() {
		method, path, _ := strings.Cut(pattern, " ")
		operation := d.at("paths", path, strings.ToLower(method))
		if operation["x-role"] != role {
			t.Errorf("%s requires the role %s, but is described with %v", pattern, role, operation["x-role"])
		}
		if operation["operationId"] == nil || operation["summary"] == nil {
			t.Errorf("%s has no id or summary", pattern)
		}
	}
}

// The description has exactly the query parameters that the API accepts.
func TestOpenAPIHasEveryParameter(t *testing.T) {
	d := readDescription(t)
	for pattern, want := range api.Parameters() {
		method, path, _ := strings.Cut(pattern, " ")
		var got []string
		parameters, _ := d.at("paths", path, strings.ToLower(method))["parameters"].([]any)
		for _, p := range parameters {
			if p := p.(map[string]any); p["in"] == "query" {
				got = append(got, p["name"].(string))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-taken +described):\n%s", pattern, diff)
		}
	}
}

// The schemas have exactly the members that the API writes.
func TestOpenAPIHasEveryMember(t *testing.T) {
	d := readDescription(t)
	for name, value := range map[string]any{
		"Approval": review.Approval{}, "Why": review.HeldBy{}, "Hints": review.Hints{}, "Untrusted": review.Untrusted{},
		"Agent": review.Agent{}, "Result": review.Result{}, "Page": review.Page{}, "Decision": gatetask.Decision{},
		"Failure": task.Failure{}, "Link": auditlog.Link{}, "Ends": auditlog.Ends{}, "Entry": auditlog.Entry{}, "Call": callrecord.Entry{}, "CallReport": callrecord.Report{}, "CallLink": callrecord.Link{}, "Verdict": api.Verdict{},
		"Context": review.Context{}, "Precedent": review.ToolChange{},
		"Grant": review.Grant{}, "GrantUse": review.GrantUse{}, "GrantTerms": gatetask.GrantTerms{}, "GrantWish": api.GrantWish{},
		"Offer": review.Offer{}, "Revocation": grantstore.Revocation{}, "Revoke": api.Revocation{}, "GrantList": api.GrantList{},
		"ChannelStatus": channel.Status{}, "SignedAnswer": webhook.SignedAnswer{}, "Answer": webhook.Answer{},
	} {
		got := slices.Sorted(maps.Keys(d.at("components", "schemas", name, "properties")))
		want := members(reflect.TypeOf(value))
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-written +described):\n%s", name, diff)
		}
	}
}

// members returns the names of the members of an encoded struct.
func members(s reflect.Type) []string {
	var names []string
	for field := range s.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case field.Anonymous:
			names = append(names, members(field.Type)...)
		default:
			names = append(names, name)
		}
	}
	return names
}

// The enumerations in the description match those in the code.
func TestOpenAPIHasEveryEnumeration(t *testing.T) {
	d := readDescription(t)
	same := func(name string, schema map[string]any, want []string) {
		t.Helper()
		var got []string
		for _, word := range schema["enum"].([]any) {
			got = append(got, word.(string))
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-code +described):\n%s", name, diff)
		}
	}
	var states, steps []string
	for _, s := range task.States() {
		states = append(states, string(s))
	}
	for _, s := range approval.RecordedSteps() {
		steps = append(steps, string(s))
	}
	same("states", d.at("components", "schemas", "State"), states)
	same("steps", d.at("components", "schemas", "Entry", "properties", "step"), steps)
	same("error types", d.at("components", "schemas", "Error", "properties", "type"), api.ErrorTypes())
}

// check fails the test unless the description covers the answer. Requests without a route are
// not described.
func (d description) check(t *testing.T, r *http.Request, answer reply) {
	t.Helper()
	path, ok := d.path(r)
	if !ok {
		return
	}
	operation := []string{"paths", path, strings.ToLower(r.Method)}
	response := d.at(append(operation, "responses", strconv.Itoa(answer.status))...)
	if response == nil {
		t.Errorf("%s %s: the status %d is not described", r.Method, path, answer.status)
		return
	}
	kind, _, err := mime.ParseMediaType(answer.header.Get("Content-Type"))
	content, _ := response["content"].(map[string]any)
	media, _ := content[kind].(map[string]any)
	if err != nil || media == nil {
		t.Errorf("%s %s: %d has the content type %q, which is not described", r.Method, path, answer.status, kind)
		return
	}
	for name := range d.at(append(operation, "responses", strconv.Itoa(answer.status), "headers")...) {
		if name != "Audit-Next" && answer.header.Get(name) == "" {
			t.Errorf("%s %s: %d has no %s", r.Method, path, answer.status, name)
		}
	}
	texts := []string{answer.body}
	if kind == "application/x-ndjson" {
		texts = strings.Split(strings.TrimSpace(answer.body), "\n")
	}
	ref, _ := media["schema"].(map[string]any)["$ref"].(string)
	for _, text := range texts {
		if text != "" && ref != "" {
			d.valid(t, ref, text)
		}
	}
}

// valid fails the test unless a JSON text matches the schema at ref.
func (d description) valid(t *testing.T, ref, text string) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Errorf("%v in %s", err, text)
		return
	}
	schemas.Lock()
	defer schemas.Unlock()
	schema, err := d.compiler.Compile("openapi.json" + ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%v: %s", err, text)
	}
}

var schemas sync.Mutex // a compiler is not safe for concurrent use

// path returns the described path that serves r.
func (d description) path(r *http.Request) (string, bool) {
	mux := http.NewServeMux()
	for _, operation := range d.operations() {
		mux.Handle(operation, http.NotFoundHandler())
	}
	_, pattern := mux.Handler(r)
	_, path, ok := strings.Cut(pattern, " ")
	return path, ok
}

// The description is served to authenticated operators only.
func TestOpenAPIIsServed(t *testing.T) {
	o := open(t)
	r := o.do(t, "GET", "/api/openapi.json", "", nil)
	if r.status != http.StatusOK || r.body != string(api.OpenAPI()) {
		t.Errorf("answer = %d %s", r.status, r.body)
	}
	o.do(t, "GET", "/api/openapi.json", "", func(r *http.Request) { r.Header.Del("Authorization") }).
		mustRefuse(t, http.StatusUnauthorized, "unauthorized")
}
