package task_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// The stored form of a task, which other versions of this program must be able to read. Its
// members are in the order of the first version, but the order does not matter. It is the
// record of STOR-04.
const stored = `{"format":1,"id":"tg_1","version":5,"state":"completed","owner":"ann",` +
	`"call":{"upstream":"files","method":"tools/call","name":"delete_file",` +
	`"message":"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/x\"}}}"},` +
	`"digest":"DIGEST","workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},` +
	`"createdAt":"2026-01-02T03:04:05.678901Z","updatedAt":"2026-01-02T03:04:05.678901Z","expiresAt":"2026-01-02T04:04:05.678901Z",` +
	`"pollInterval":10000000,"contactAt":"2026-01-02T03:04:05.678901Z","variables":{"client.a":1.0},` +
	`"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05.678901Z","by":"gate"},` +
	`{"from":"approved","to":"executing","at":"2026-01-02T03:04:05.678901Z","by":"gate-1"},` +
	`{"from":"executing","to":"completed","at":"2026-01-02T03:04:05.678901Z","by":"gate-1"}],` +
	`"execution":{"executor":"gate-1","startedAt":"2026-01-02T03:04:05.678901Z","leaseUntil":"2026-01-02T03:04:35.678901Z"},` +
	`"result":{"kind":"ok","size":2,"inline":"e30="},"argumentsAt":[89,17]}`

func TestEncode(t *testing.T) {
	want := apply(t, newTask(t), lifecycle.Admit{By: "gate"}, set(task.ClientSide, task.Variables{"client.a": raw("1.0")}), claim, complete)
	text := strings.Replace(stored, "DIGEST", want.Digest.String(), 1)
	got, err := storekit.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sorted(t, text), sorted(t, string(got))); diff != "" {
		t.Errorf("the stored form changed: raise its version, and read both (-want +got):\n%s", diff)
	}
	back, err := storekit.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, back); diff != "" {
		t.Errorf("task (-want +got):\n%s", diff)
	}
}

// sorted returns JSON with its members sorted by name.
func sorted(t *testing.T, text string) string {
	t.Helper()
	form, err := jsontext.AppendFormat(nil, text, jsontext.ReorderRawObjects(true))
	if err != nil {
		t.Fatal(err)
	}
	return string(form)
}

// TestEncodeKeepsArguments checks that arguments survive, whether or not the message contains their
// text.
func TestEncodeKeepsArguments(t *testing.T) {
	for _, arguments := range []string{"", `{"path":"/tmp/x"}`, `{"path": "/tmp/x"}`} {
		d := draft("tg_1", "ann")
		d.Call.Arguments = arguments
		want, err := task.New(d, epoch)
		if err != nil {
			t.Fatal(err)
		}
		data, err := storekit.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(data), "/tmp/x"); (n == 1) != (arguments != `{"path": "/tmp/x"}`) {
			t.Errorf("arguments %q are stored %d times", arguments, n)
		}
		got, err := storekit.Decode(data)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("arguments %q: %v (-want +got):\n%s", arguments, err, diff)
		}
	}
}

func TestDecodeRefusesDamage(t *testing.T) {
	good, err := storekit.Encode(newTask(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, swap := range map[string][2]string{
		"a newer format":          {`"format":1`, `"format":2`},
		"no format":               {`"format":1`, `"format":0`},
		"an unknown state":        {`"state":"working"`, `"state":"parked"`},
		"an unknown member":       {`"format":1`, `"format":1,"fromat":1`},
		"a duplicate member":      {`"format":1`, `"format":1,"format":1`},
		"no JSON":                 {`"format":1`, `"format":`},
		"a span without an end":   {`[89,17]`, `[89]`},
		"a span before the start": {`[89,17]`, `[-1,17]`},
		"a span after the end":    {`[89,17]`, `[1000,0]`},
		"a span over the end":     {`[89,17]`, `[89,1000]`},
		"a span of no length":     {`[89,17]`, `[89,-1]`},
		"a span that overflows":   {`[89,17]`, `[1,9223372036854775807]`},
		"a duration that is none": {`"pollInterval":10000000`, `"pollInterval":"10s"`},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(string(good), swap[0], swap[1], 1)
			if bad == string(good) {
				t.Fatal("the case changed nothing")
			}
			if got, err := storekit.Decode([]byte(bad)); !errors.Is(err, task.ErrUnreadable) {
				t.Errorf("decoded %+v, %v", got, err)
			}
		})
	}
}

func TestEncodeIsExact(t *testing.T) {
	d := draft("tg_\u00e9\"\\", "o'\n\u2028")
	d.Call.Message = "\t{\"a\" :1.0,\"<&>\":\"\\u00e9\x7f\"}\r\n"
	d.PollInterval = 1500 * time.Microsecond
	want, err := task.New(d, epoch)
	if err != nil {
		t.Fatal(err)
	}
	data, err := storekit.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := storekit.Decode(data)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
