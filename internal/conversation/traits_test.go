package conversation_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func TestMayBeResponse(t *testing.T) {
	tests := map[string]bool{
		`{"id":1,"result":{}}`:                     true,
		`{"id":1,"Error":{}}`:                      true,
		`{"RESULT" : 1}`:                           true,
		"{\"error\"\n\t:1}":                        true,
		"data: {\"error\"\ndata: :1}\n\n":          true,
		"data:{\"error\"\rdata\r: x\rdata::1}\r\r": true,
		`{"\u0072esult":1}`:                        true,
		`{"resul\u0054":1}`:                        true,
		`{"re\u017fult":1}`:                        true,
		`{"reſult":1}`:                             true,
		`{"text":"x\\","error":1}`:                 true,
		`{"text\\":1}`:                             true, // a false positive is harmless
		`{result:1}`:                               true, // not JSON, but some parser may read it
		`{'result':1}`:                             true,
		`{"e\x72ror":1}`:                           true,
		`{"e\u{72}ror":1}`:                         true,
		`{"error"/* */:1}`:                         true,
		"{\"error\"\u00a0:1}":                      true,
		`{"method":"error","params":{"text":"the result"}}`: false,
		`{"text":"it said {\"error\":1}"}`:                  false,
		`{"text":"caf\u00e9 at C:\\data at 18:00"}`:         false,
		`{"results":1,"errors":2}`:                          false,
		"event: message\ndata: {}\n\n":                      false,
		"":                                                  false,
		":":                                                 false,
	}
	for text, want := range tests {
		if got := conversation.MayBeResponse([]byte(text)); got != want {
			t.Errorf("MayBeResponse(%s) = %v", text, got)
		}
	}
}

func TestTaskStatusTrait(t *testing.T) {
	tests := map[string]bool{
		`{"method":"notifications/tasks"}`:                                     true,
		`{"Method" : "notifications/tasks/status"}`:                            true,
		`{"method":"notifications\/tasks"}`:                                    true,
		`{"m\u0065thod":"notifications/tasks"}`:                                true,
		`{"method":"ping","method":"notifications/tasks"}`:                     true,
		`{"text":"\n","params":{"method":"x"},"method":"notifications/tasks"}`: true,
		`{"method":/* */"notifications/tasks"}`:                                true,
		`{'method':'notifications/tasks'}`:                                     true,
		"data: {\"method\":\ndata:\"notifications/tasks\"}\n\n":                true,
		`{"method":"notifications/message","params":"a\nb"}`:                   false,
		`{"method":"notifications/message","params":"notifications/tasks"}`:    false,
		`{"result":{"text":"one\ntwo"}}`:                                       false,
		`{"result":{"text":"\"method\":\"notifications/tasks\""}}`:             false,
	}
	for text, want := range tests {
		if got := conversation.DetectTraits([]byte(text)).TaskStatus; got != want {
			t.Errorf("%s: TaskStatus is %v", text, got)
		}
	}
}

// A text has the trait TaskStatus if a parser that ignores the case of names reads it, or the data
// of an event in it, as a notification about a task.
func FuzzTaskStatusTrait(f *testing.F) {
	f.Add([]byte(`{"METHOD" : "notifications\/tasks","params":{}}`))
	f.Add([]byte(`{"method":"\\\":","m\u0065thod":"notifications/tasks/status"}`))
	f.Add([]byte("data: {\"method\"\nid\n: x\ndata: :\ndata:\"notifications/tasks\"}\n\n"))
	isReport := func(text []byte) bool {
		var m struct{ Method string }
		return json.Unmarshal(text, &m) == nil && strings.HasPrefix(m.Method, "notifications/tasks")
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if conversation.DetectTraits(text).TaskStatus {
			return
		}
		if isReport(text) {
			t.Errorf("%q is a notification about a task", text)
		}
		for events := jsonrpc.NewEventReader(bytes.NewReader(text), len(text)); ; {
			event, err := events.Next()
			if err != nil {
				return
			}
			if isReport(event.Data) {
				t.Errorf("the data %q of %q is a notification about a task", event.Data, text)
			}
		}
	})
}

// A text may be a response if a parser that ignores the case of names reads it, or the data of an
// event in it, as a response.
func FuzzMayBeResponse(f *testing.F) {
	f.Add([]byte(`{"id":1,"\u0072E\u017fult":{}}`))
	f.Add([]byte(`{"id":1,"method":"error","text":"\\\":","error":1}`))
	f.Add([]byte("data: {\"id\":1,\"result\"\nid\n: x\ndata: :1}\n\n"))
	f.Add([]byte("\ufeffdata:[{\"error\"\r\ndata:\r\ndata::{}}]\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if conversation.MayBeResponse(text) {
			return
		}
		if name, answers := responseMember(text); answers {
			t.Errorf("%q has a member %q", text, name)
		}
		for events := jsonrpc.NewEventReader(bytes.NewReader(text), len(text)); ; {
			event, err := events.Next()
			if err != nil {
				return
			}
			if name, answers := responseMember(event.Data); answers {
				t.Errorf("the data %q of %q has a member %q", event.Data, text, name)
			}
		}
	})
}

// responseMember returns the member that makes text a response for a lenient parser.
func responseMember(text []byte) (string, bool) {
	var members map[string]json.RawMessage
	var batch []map[string]json.RawMessage
	if json.Unmarshal(text, &members) == nil {
		batch = append(batch, members)
	} else if json.Unmarshal(text, &batch) != nil {
		return "", false
	}
	for _, m := range batch {
		for name := range m {
			if strings.EqualFold(name, "result") || strings.EqualFold(name, "error") {
				return name, true
			}
		}
	}
	return "", false
}

func BenchmarkMayBeResponse(b *testing.B) {
	text := []byte(strings.Repeat(`The north bridge carries 4,120 cars a day.\nIts \"winter\" load is lower, see C:\\data\\bridges; the caf\u00e9 closes at 18:00. `, 500))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if conversation.MayBeResponse(text) {
			b.Fatal("the text counts as a response")
		}
	}
}
