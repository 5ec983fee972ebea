package task_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

func set(side task.Side, values task.Variables) lifecycle.SetVariables {
	return lifecycle.SetVariables{Side: side, Values: values}
}

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// TestSetVariables covers the variables of HNDL-01.
func TestSetVariables(t *testing.T) {
	got := apply(t, newTask(t),
		set(task.ClientSide, task.Variables{"client.reason": raw(` "why\u0020not" `), "client.old": raw("1")}),
		set(task.ServerSide, task.Variables{"server.approval": raw(`{"state" : "pending", "n": 1.0}`)}),
		set(task.ClientSide, task.Variables{"client.old": raw(" null "), "client.never-there": raw("null"), "client.a.b_c-d.9": raw("[ ]")}),
	)
	want := task.Variables{
		"client.reason": raw(`"why not"`), "client.a.b_c-d.9": raw(`[]`), "server.approval": raw(`{"state":"pending","n":1.0}`),
	}
	if diff := cmp.Diff(want, got.Variables); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	gone := apply(t, got,
		set(task.ClientSide, task.Variables{"client.reason": raw("null"), "client.a.b_c-d.9": raw("null")}),
		set(task.ServerSide, task.Variables{"server.approval": raw("null")}))
	if gone.Variables != nil {
		t.Errorf("all variables were deleted, but %v remain", gone.Variables)
	}
}

func TestVariablesAreCopied(t *testing.T) {
	mine := task.Variables{"client.a": raw(`"data"`)}
	made := apply(t, newTask(t), set(task.ClientSide, mine))
	mine["client.a"][1] = '!'
	clone := made.Clone()
	clone.Variables["client.a"][1] = '!'
	clone.Variables["client.b"] = raw("1")
	if got := string(made.Variables["client.a"]); got != `"data"` || len(made.Variables) != 1 {
		t.Errorf("variables are shared: %s", got)
	}
}

func TestSidesOnlySetTheirVariables(t *testing.T) {
	tests := []struct {
		side task.Side
		name string
		want error
	}{
		{task.ClientSide, "server.approval", task.ErrVariableOwnership},
		{task.ServerSide, "client.reason", task.ErrVariableOwnership},
		{task.ClientSide, "reason", task.ErrVariableOwnership},
		{task.ClientSide, "Client.reason", task.ErrVariableOwnership},
		{task.ClientSide, "io.modelcontextprotocol/related-task", task.ErrVariableOwnership},
		{"root", "root.x", task.ErrVariableOwnership},
		{"", ".x", task.ErrVariableOwnership},
		{task.ClientSide, "client.", task.ErrInvalidVariable},
		{task.ClientSide, "client..a", task.ErrInvalidVariable},
		{task.ClientSide, "client.a-", task.ErrInvalidVariable},
		{task.ClientSide, "client.a/b", task.ErrInvalidVariable},
		{task.ClientSide, "client.a b", task.ErrInvalidVariable},
		{task.ClientSide, "client.\u00e9", task.ErrInvalidVariable},
	}
	for _, tt := range tests {
		before := newTask(t)
		// The valid variable must not be written either.
		_, err := lifecycle.Apply(before, set(tt.side, task.Variables{tt.name: raw("1"), string(tt.side) + ".good": raw("1")}), epoch)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s writes %s: err = %v; want %v", tt.side, tt.name, err, tt.want)
		}
	}
	for _, value := range []string{"", "{", `{"a":1,"a":1}`, "\"\xff\"", "1 2"} {
		_, err := lifecycle.Apply(newTask(t), set(task.ClientSide, task.Variables{"client.a": raw(value)}), epoch)
		if !errors.Is(err, task.ErrInvalidVariable) {
			t.Errorf("%q: err = %v; want %v", value, err, task.ErrInvalidVariable)
		}
	}
}

// TestVariableLimits covers STOR-03: the limits are configurable, and hold for every store
// because they are checked before the store is called.
func TestVariableLimits(t *testing.T) {
	limits := task.VariableLimits{Count: 2, Name: 10, Value: 8, Total: 24}
	tests := []struct {
		name  string
		write task.Variables
		size  int64 // zero if it is within the limit
		limit int64
	}{
		{"count", task.Variables{"client.b": raw("1"), "client.c": raw("1")}, 3, 2},
		{"two", task.Variables{"client.b": raw("1")}, 0, 0},
		{"name", task.Variables{"client.long": raw("1")}, 11, 10},
		{"long name", task.Variables{"client.lon": raw("1")}, 0, 0},
		{"value", task.Variables{"client.a": raw(`"1234567"`)}, 9, 8},
		{"white space does not count", task.Variables{"client.a": raw(` [1, 2, 3] `)}, 0, 0},
		{"total", task.Variables{"client.b": raw(`123456`), "client.a": raw("1234")}, 26, 24},
		{"just the total", task.Variables{"client.b": raw(`123456`), "client.a": raw("12")}, 0, 0},
		{"deleting frees space", task.Variables{"client.a": raw("null"), "client.b": raw("1"), "client.c": raw("1")}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := apply(t, newTask(t), set(task.ClientSide, task.Variables{"client.a": raw("1")}))
			_, err := lifecycle.Apply(before, lifecycle.SetVariables{Side: task.ClientSide, Values: tt.write, Limits: limits}, epoch)
			if tt.size == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e, ok := errors.AsType[*task.Error](err)
			if !ok || !errors.Is(err, task.ErrVariableSizeExceeded) || e.Size != tt.size || e.Limit != tt.limit {
				t.Errorf("err = %+v; want %v with %d over %d", e, task.ErrVariableSizeExceeded, tt.size, tt.limit)
			}
		})
	}
}

func TestDefaultVariableLimits(t *testing.T) {
	many := task.Variables{}
	for i := range 64 {
		many[fmt.Sprint("client.", i)] = raw("1")
	}
	full := apply(t, newTask(t), set(task.ClientSide, many))
	for name, values := range map[string]task.Variables{
		"one more":     {"client.more": raw("1")},
		"a long name":  {"client." + strings.Repeat("x", 122): raw("null")},
		"a long value": {"client.1": raw(`"` + strings.Repeat("x", 16<<10-1) + `"`)},
		"too much": {
			"client.1": big(), "client.2": big(), "client.3": big(), "client.4": big(),
		},
	} {
		if _, err := lifecycle.Apply(full, set(task.ClientSide, values), epoch); !errors.Is(err, task.ErrVariableSizeExceeded) {
			t.Errorf("%s: err = %v; want %v", name, err, task.ErrVariableSizeExceeded)
		}
	}
}

// big returns the longest valid value.
func big() json.RawMessage { return raw(`"` + strings.Repeat("x", 16<<10-2) + `"`) }
