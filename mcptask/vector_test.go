package mcptask_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/mcptask"
)

// A vector is one message of the protocol with the definition that it must
// satisfy: as a whole, or in its member result.
type vector struct {
	ID         string          `json:"id"`
	Schema     string          `json:"schema"`
	Definition string          `json:"definition"`
	Member     string          `json:"member"`
	Message    json.RawMessage `json:"message"`
}

func loadVectors(t testing.TB) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := jsonv2.Unmarshal(text, &vectors, jsonv2.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	if len(vectors) != 56 {
		t.Fatalf("%d vectors; want L01 to L28 and M01 to M28", len(vectors))
	}
	return vectors
}

// typed says which part of a vector this package has a type for. Every other
// message is read as an [mcptask.Object].
var typed = map[string]struct {
	path   string
	as     func() any
	others bool // has members of other features too
}{
	"L02": {"result.capabilities.tasks", as[mcptask.ServerCapability], false},
	"L04": {"result.tools.0.execution", as[mcptask.ToolExecution], false},
	"L05": {"params.task", as[mcptask.Augmentation], false},
	"L06": {"result", as[mcptask.CreateResult2025], false},
	"L07": {"params", as[mcptask.TaskParams], false},
	"L08": {"result", as[mcptask.TaskResult2025], false},
	"L09": {"params", as[mcptask.TaskParams], false},
	"L10": {"result", as[mcptask.Object], false},
	"L11": {"result", as[mcptask.TaskResult2025], false},
	"L13": {"", as[mcptask.StatusNotification2025], false},
	"L14": {"params", as[mcptask.ListParams], false},
	"L15": {"result", as[mcptask.ListResult2025], false},
	"L16": {"params", as[mcptask.TaskParams], false},
	"L17": {"result", as[mcptask.TaskResult2025], false},
	"M02": {"result.capabilities.extensions", as[mcptask.Object], false},
	"M04": {"result", as[mcptask.CreateResult2026], false},
	"M05": {"params", as[mcptask.TaskParams], false},
	"M06": {"result", as[mcptask.GetResult2026], false},
	"M07": {"result", as[mcptask.GetResult2026], false},
	"M08": {"result", as[mcptask.GetResult2026], false},
	"M09": {"result", as[mcptask.GetResult2026], false},
	"M10": {"result", as[mcptask.GetResult2026], false},
	"M11": {"params", as[mcptask.UpdateParams], false},
	"M12": {"result", as[mcptask.Ack2026], false},
	"M13": {"params", as[mcptask.TaskParams], false},
	"M14": {"result", as[mcptask.Ack2026], false},
	"M15": {"params.notifications", as[mcptask.Subscription], true},
	"M16": {"params.notifications", as[mcptask.Subscription], true},
	"M17": {"", as[mcptask.StatusNotification2026], false},
}

// newLike returns a pointer to a new value of the type of like.
func newLike(like any) any { return reflect.New(reflect.TypeOf(like)).Interface() }

func as[T any]() any { return new(T) }

// TestVectors proves TYPE-01 and TEST-01: every message of the protocol can be
// read, is valid, and is written as it was.
func TestVectors(t *testing.T) {
	s := loadSchemas(t)
	for _, v := range loadVectors(t) {
		t.Run(v.ID+" "+v.Definition, func(t *testing.T) {
			s.mustMatch(t, v.Schema, v.Definition, at(t, v.Message, v.Member))

			part, ok := typed[v.ID]
			if !ok {
				part.as = as[mcptask.Object]
				if jsontext.Value(v.Message).Kind() == jsontext.KindBeginArray {
					part.as = as[[]mcptask.Object]
				}
			}
			value := part.as()
			text := at(t, v.Message, part.path)
			if err := jsonv2.Unmarshal(text, value); err != nil {
				t.Fatalf("read %s: %v", text, err)
			}
			if part.others {
				sameJSON(t, text, mustMarshal(t, value))
				return
			}
			// A misspelt member would survive as an unknown one.
			if extra := unknown(reflect.ValueOf(value)); extra != nil {
				t.Errorf("members without a field: %s", extra)
			}
			if diff := cmp.Diff(string(text), string(mustMarshal(t, value))); diff != "" {
				t.Errorf("round trip (-want +got):\n%s", diff)
			}
		})
	}
}

// unknown returns the first unknown members that v, or a value inside it, has.
func unknown(v reflect.Value) map[string]json.RawMessage {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return unknown(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if extra := unknown(v.Index(i)); extra != nil {
				return extra
			}
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			if field.Name == "Extra" && value.Len() > 0 {
				return value.Interface().(map[string]json.RawMessage)
			}
			if extra := unknown(value); extra != nil {
				return extra
			}
		}
	default:
	}
	return nil
}

// at returns the value at a path of member names and array indexes.
func at(t testing.TB, text json.RawMessage, path string) json.RawMessage {
	t.Helper()
	for name := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '.' }) {
		if jsontext.Value(text).Kind() == jsontext.KindBeginArray {
			var list []json.RawMessage
			if err := jsonv2.Unmarshal(text, &list); err != nil {
				t.Fatal(err)
			}
			text = list[int(name[0]-'0')]
			continue
		}
		var o mcptask.Object
		if err := jsonv2.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		member, ok := o.Get(name)
		if !ok {
			t.Fatalf("no member %s in %s", name, text)
		}
		text = member
	}
	return text
}
