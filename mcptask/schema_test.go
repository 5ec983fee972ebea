package mcptask_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	schemaLegacy = "mcp-2025-11-25.schema.json"
	schemaModern = "mcp-2026-07-28.schema.json"
	schemaTasks  = "ext-tasks.schema.json"
)

// schemas are the official JSON schemas of the protocol.
type schemas struct {
	compiler *jsonschema.Compiler
	defs     map[string]string // the member in which a file keeps its definitions
}

func loadSchemas(t testing.TB) schemas {
	t.Helper()
	s, err := readSchemas()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readSchemas reads the schemas once: compiling them is slow.
var readSchemas = sync.OnceValues(func() (schemas, error) {
	s := schemas{compiler: jsonschema.NewCompiler(), defs: map[string]string{}}
	files, err := filepath.Glob("testdata/schema/*.json")
	if err != nil || len(files) != 5 {
		return s, fmt.Errorf("schema files: %v, %w", files, err)
	}
	for _, file := range files {
		if err := s.add(file); err != nil {
			return s, err
		}
	}
	return s, nil
})

func (s schemas) add(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	// Tests refer to a schema by its file name, not by its $id.
	top := doc.(map[string]any)
	delete(top, "$id")
	name := filepath.Base(file)
	s.defs[name] = "definitions"
	if _, ok := top["$defs"]; ok {
		s.defs[name] = "$defs"
	}
	return s.compiler.AddResource("https://schema.test/"+name, top)
}

// check returns why text is not valid, or nil.
func (s schemas) check(file, definition string, text []byte) error {
	schema, err := s.compiler.Compile("https://schema.test/" + file + "#/" + s.defs[file] + "/" + definition)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func (s schemas) mustMatch(t *testing.T, file, definition string, text []byte) {
	t.Helper()
	if err := s.check(file, definition, text); err != nil {
		t.Errorf("%s of %s refuses %s: %v", definition, file, text, err)
	}
}

// fataler is the common part of a test and a property.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func mustMarshal(t fataler, v any) json.RawMessage {
	t.Helper()
	text, err := jsonv2.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// sameJSON fails t unless got and want have the same members and values. The order of members
// does not matter. Numbers are compared as text.
func sameJSON(t *testing.T, want, got []byte) {
	t.Helper()
	if diff := cmp.Diff(sorted(t, want), sorted(t, got)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func sorted(t *testing.T, text []byte) string {
	t.Helper()
	v := jsontext.Value(bytes.Clone(text))
	if err := v.Format(jsontext.ReorderRawObjects(true), jsontext.Multiline(true)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return string(v)
}

// The validator rejects invalid messages.
func TestSchemasRejectInvalidMessages(t *testing.T) {
	s := loadSchemas(t)
	for _, tt := range []struct{ file, definition, text string }{
		{schemaLegacy, "Task", `{"taskId":"a","status":"working","createdAt":"x","lastUpdatedAt":"x"}`},
		{schemaLegacy, "Task", `{"taskId":"a","status":"approved","createdAt":"x","lastUpdatedAt":"x","ttl":1}`},
		{schemaLegacy, "CreateTaskResult", `{"taskId":"a","status":"working","createdAt":"x","lastUpdatedAt":"x","ttl":1}`},
		{schemaTasks, "CreateTaskResult", `{"task":{"taskId":"a","status":"working","createdAt":"x","lastUpdatedAt":"x","ttlMs":1}}`},
		{schemaTasks, "CompletedTask", `{"taskId":"a","status":"completed","createdAt":"x","lastUpdatedAt":"x","ttlMs":1}`},
		{schemaTasks, "TasksExtensionCapability", `{"list":{}}`},
	} {
		if s.check(tt.file, tt.definition, []byte(tt.text)) == nil {
			t.Errorf("%s of %s accepts %s", tt.definition, tt.file, tt.text)
		}
	}
}
