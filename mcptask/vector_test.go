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

	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

// A vector is a message of the protocol with the definition that it must satisfy. The
// definition applies to the whole message, or to its member result.
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

// typed names the part of a vector for which this package has a type. Other messages are read
// as an [schema.Object].
var typed = map[string]struct {
	path   string
	as     func() any
	others bool // has members of other features
}{
	"L02": {"result.capabilities.tasks", as[schema.ServerCapability], false},
	"L04": {"result.tools.0.execution", as[schema.ToolExecution], false},
	"L05": {"params.task", as[schema.Augmentation], false},
	"L06": {"result", as[schema.CreateResult2025], false},
	"L07": {"params", as[schema.TaskParams], false},
	"L08": {"result", as[schema.TaskResult2025], false},
	"L09": {"params", as[schema.TaskParams], false},
	"L10": {"result", as[schema.Object], false},
	"L11": {"result", as[schema.TaskResult2025], false},
	"L13": {"", as[schema.StatusNotification2025], false},
	"L14": {"params", as[schema.ListParams], false},
	"L15": {"result", as[schema.ListResult2025], false},
	"L16": {"params", as[schema.TaskParams], false},
	"L17": {"result", as[schema.TaskResult2025], false},
	"M02": {"result.capabilities.extensions", as[schema.Object], false},
	"M04": {"result", as[schema.CreateResult2026], false},
	"M05": {"params", as[schema.TaskParams], false},
	"M06": {"result", as[schema.GetResult2026], false},
	"M07": {"result", as[schema.GetResult2026], false},
	"M08": {"result", as[schema.GetResult2026], false},
	"M09": {"result", as[schema.GetResult2026], false},
	"M10": {"result", as[schema.GetResult2026], false},
	"M11": {"params", as[schema.UpdateParams], false},
	"M12": {"result", as[schema.Ack2026], false},
	"M13": {"params", as[schema.TaskParams], false},
	"M14": {"result", as[schema.Ack2026], false},
	"M15": {"params.notifications", as[schema.Subscription], true},
	"M16": {"params.notifications", as[schema.Subscription], true},
	"M17": {"", as[schema.StatusNotification2026], false},
}

// newLike returns a pointer to a new value of the type of like.
func newLike(like any) any { return reflect.New(reflect.TypeOf(like)).Interface() }

func as[T any]() any { return new(T) }

// TYPE-01 and TEST-01: every message of the protocol can be read, is valid, and is written as
// it was.
func TestProtocolMessagesRoundTrip(t *testing.T) {
	s := loadSchemas(t)
	for _, v := range loadVectors(t) {
		t.Run(v.ID+" "+v.Definition, func(t *testing.T) {
			s.mustMatch(t, v.Schema, v.Definition, at(t, v.Message, v.Member))

			part, ok := typed[v.ID]
			if !ok {
				part.as = as[schema.Object]
				if jsontext.Value(v.Message).Kind() == jsontext.KindBeginArray {
					part.as = as[[]schema.Object]
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
			// A misspelt member would be kept as an unknown one.
			if extra := unknown(reflect.ValueOf(value)); extra != nil {
				t.Errorf("members without a field: %s", extra)
			}
			if diff := cmp.Diff(string(text), string(mustMarshal(t, value))); diff != "" {
				t.Errorf("round trip (-want +got):\n%s", diff)
			}
		})
	}
}

// unknown returns the first unknown members of v, or of a value inside it.
func unknown(v reflect.Value) schema.Object {
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
				return value.Interface().(schema.Object)
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
		var o schema.Object
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
