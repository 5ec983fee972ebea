package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/thoughtgate/thoughtgate-go/docs"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// compileSchema returns the compiled schema, as editors read it.
func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	meanings := map[string]config.Meaning{}
	for _, s := range docs.Settings() {
		meanings[s.Path] = config.Meaning{Text: s.Meaning, Default: s.Value()}
	}
	text, err := config.JSONSchema(kinds, meanings)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("config.json", value); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// validate validates a file against the schema.
func validate(t *testing.T, schema *jsonschema.Schema, file string) error {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(file))
	if err != nil {
		t.Fatal(err, file)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err, file)
	}
	return schema.Validate(value)
}

func accepts(t *testing.T, schema *jsonschema.Schema, file string) {
	t.Helper()
	if err := validate(t, schema, file); err != nil {
		t.Errorf("the schema refuses\n%s\n%v", file, err)
	}
}

func refuses(t *testing.T, schema *jsonschema.Schema, file string) {
	t.Helper()
	if err := validate(t, schema, file); err == nil {
		t.Errorf("the schema accepts\n%s", file)
	}
}

// The loader and the schema both refuse these files.
func TestSchemaRefuses(t *testing.T) {
	schema := compileSchema(t)
	const start = "version: 1\nupstreams: [{url: https://a/}]\n"
	for _, line := range []string{
		"lisen: 127.0.0.1:1", "listen: 1", "listen: [a]", "upstreams: {}", "mode: monitor", "identity: {anonymous: 'yes'}", "identity: {anonymous: maybe}", "drafts: true",
		"rules: [{match: a, action: allow}]\ndefault: deny", "rules: [{match: a, action: deny}]", "default: allow", "default: {action: allow}",
		"limits: {max_batch: 0}", "limits: {max_batch: 100001}", "limits: {max_batch: many}", "limits: {request_timeout: 30}",
		"limits: {request_timeout: 30 s}", "limits: {max_result: 1TB}", "limits: {max_depth: 1.5}", "telemetry: {traces: {sample: 2}}",
		"workflows: {w: {channels: [Fax]}}", "workflows: {w: {quorom: 2}}", "identity: {tokens: [{name: a, hash: secret}]}",
		"upstreams: [{url: https://a/, command: [a]}]", "waiting: {hosts: [{name: a, limit: never}]}", "tasks:",
	} {
		file := start + line
		if strings.HasPrefix(line, "upstreams") {
			file = "version: 1\n" + line
		}
		if _, _, err := config.Parse("file", []byte(file), nil, kinds...); err == nil {
			t.Errorf("the loader accepts\n%s", file)
		}
		refuses(t, schema, file)
	}
}

// The loader and the schema both accept these files, whose forms are easily forgotten in a
// schema.
func TestSchemaAccepts(t *testing.T) {
	schema := compileSchema(t)
	const start = "version: 1\nupstreams: [{url: https://a/}]\n"
	for _, line := range []string{
		"identity: {anonymous: '${A}'}", "limits: {max_batch: '${N}', max_result: 1048576, request_timeout: '1h2m.5s', max_header: '65536'}", "audit: {retention: '0'}",
		"default: deny", "default: '${ACTION}'", "rules: [{match: a, action: approve, kind: ''}]\ndefault: deny",
		"waiting: {hosts: [{name: 'a*', limit: none}]}", "telemetry: {traces: {sample: 1, endpoint: ''}}", "storage: {max_size: 0}",
	} {
		if _, _, err := config.Parse("file", []byte(start+line), []string{"A=true", "N=5", "ACTION=deny"}, kinds...); err != nil {
			t.Errorf("the loader refuses\n%s\n%v", line, err)
		}
		accepts(t, schema, start+line)
	}
}

var (
	yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	version   = regexp.MustCompile(`(?m)^version:`)
)

// Every configuration in the documentation loads. An example without a version is part of a
// file.
func TestExamplesInDocsLoad(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	deploy, err := filepath.Glob("../../docs/deploy/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, deploy...)
	schema, count := compileSchema(t), 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(b[1], "mcpServers:") {
				continue // a configuration of an agent host
			}
			if strings.HasPrefix(b[1], "tests:") {
				continue // tests of a policy
			}
			count++
			example(t, schema, page, b[1])
		}
	}
	if count < 8 {
		t.Errorf("found only %d examples", count)
	}
}

// The first three examples in configuration.md are complete files, which load as they are.
func TestExamplesInConfigurationDocAreComplete(t *testing.T) {
	_, page, _ := strings.Cut(readDocs(t), "\n## Three examples\n")
	page, _, _ = strings.Cut(page, "\n## ")
	examples := yamlBlock.FindAllStringSubmatch(page, -1)
	if len(examples) != 3 {
		t.Fatalf("found %d examples", len(examples))
	}
	for _, e := range examples {
		if _, _, err := config.Parse("example", []byte(e[1]), exampleVariables, kinds...); err != nil {
			t.Errorf("%v in\n%s", err, e[1])
		}
	}
}

// exampleVariables are the environment variables used by the examples.
var exampleVariables = []string{
	"FILES_KEY=k", "CRM_TOKEN=t", "OIDC_SECRET=s", "FILES_TOKEN=t", "PASSWORD=p", "SLACK_BOT_TOKEN=xoxb-b", "SLACK_APP_TOKEN=xapp-a", "SMTP_PASSWORD=secret",
}

func example(t *testing.T, schema *jsonschema.Schema, page, file string) {
	t.Helper()
	if !version.MatchString(file) {
		file = "version: 1\n" + file
	}
	if !strings.Contains(file, "\nupstreams:") {
		file += "\nupstreams: [{url: https://a/}]\n"
	}
	accepts(t, schema, file)
	if _, _, err := config.Parse(filepath.Base(page), []byte(file), exampleVariables, kinds...); err != nil {
		t.Errorf("%v in\n%s", err, file)
	}
}
