package jsonrpc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		normalCall,
		`{"jsonrpc":"2.0","id":"a","method":"resources/read","params":{"uri":"file:///x","_meta":{"k":[1,2.5e-3,null]}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","arguments":{},"task":{"ttl":60000}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"tg_1"}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}]}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`,
		` [ {"jsonrpc":"2.0","id":1,"method":"a"} , {"jsonrpc":"2.0","method":"b"} ] `,
		`{"\u006asonrpc":"2\u002e0","\u0069d":-0,"\u006dethod":"m","params":{"n\u0061me":"\ud83d\ude00"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"read","NAME":"drop"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","param\u017f":{"tas\u212a":1}}`,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":[[[[{"a":{"b":"` + "\xff" + `"}}]]]]}`,
		`{"jsonrpc":"2.0","id":1e400,"method":"\ud800"}`,
		"\ufeff{}", "{}\x00", "[]", "", "01",
		strings.Repeat("[", 200),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		kept := bytes.Clone(data)
		packet, err := jsonrpc.Parse(data, jsonrpc.Limits{})
		if !bytes.Equal(kept, data) {
			t.Fatal("Parse changed its input")
		}
		if err != nil {
			checkRefusal(t, data, err)
			return
		}
		if !jsontext.Value(data).IsValid() {
			t.Fatalf("accepted %q, which is not strict JSON", data)
		}
		if !packet.Batch && !bytes.Equal(packet.Messages[0].Raw, bytes.Trim(data, " \t\r\n")) {
			t.Errorf("Raw = %q", packet.Messages[0].Raw)
		}
		for _, m := range packet.Messages {
			checkReadAgain(t, m)
			checkOtherDecoder(t, m)
		}
	})
}

// checkRefusal checks that exactly the texts that are not strict JSON are refused with CodeParse.
func checkRefusal(t *testing.T, data []byte, err error) {
	t.Helper()
	strict := jsontext.Value(data).IsValid()
	refusal, ok := errors.AsType[*jsonrpc.ParseError](err)
	switch {
	case !ok:
		t.Fatalf("error %v is not a ParseError", err)
	case refusal.Code == jsonrpc.CodeInvalidRequest:
		if !strict {
			t.Errorf("not strict JSON, but refused with %v", err)
		}
	case refusal.Code != jsonrpc.CodeParse:
		t.Errorf("code %d", refusal.Code)
	case strict && !strings.HasSuffix(refusal.Reason, "only by case") && refusal.Reason != "nested too deeply":
		t.Errorf("refused strict JSON: %v", err)
	}
}

// checkReadAgain checks that Raw parses as the same message.
func checkReadAgain(t *testing.T, m jsonrpc.Message) {
	t.Helper()
	again, err := jsonrpc.Parse(m.Raw, jsonrpc.Limits{})
	if err != nil {
		t.Fatalf("Raw %q is refused: %v", m.Raw, err)
	}
	if diff := cmp.Diff(viewOf(m), viewOf(again.Messages[0])); diff != "" {
		t.Errorf("read again (-first +second):\n%s", diff)
	}
	if id := again.Messages[0].ID; !bytes.HasPrefix(m.Raw[id.Offset:], id.Bytes) {
		t.Errorf("the id is not at its offset %d of %q", id.Offset, m.Raw)
	}
}

// checkOtherDecoder checks that encoding/json, which ignores case and takes the last of duplicate
// members, reads the same message.
func checkOtherDecoder(t *testing.T, m jsonrpc.Message) {
	t.Helper()
	var other struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	var params struct {
		Name      json.RawMessage `json:"name"`
		URI       json.RawMessage `json:"uri"`
		TaskID    json.RawMessage `json:"taskId"`
		Task      json.RawMessage `json:"task"`
		Meta      json.RawMessage `json:"_meta"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(m.Raw, &other); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", m.Raw, err)
	}
	if m.Params.IsObject() {
		if err := json.Unmarshal(other.Params, &params); err != nil {
			t.Fatalf("encoding/json refuses params %q: %v", other.Params, err)
		}
	}
	want := view{
		Kind: m.Kind, Method: other.Method, ID: string(other.ID),
		Params: string(other.Params), Result: string(other.Result), Error: string(other.Error),
		Name: string(params.Name), URI: string(params.URI), TaskID: string(params.TaskID),
		Task: string(params.Task), Meta: string(params.Meta), Arguments: string(params.Arguments),
	}
	if diff := cmp.Diff(want, viewOf(m)); diff != "" {
		t.Errorf("%q (-encoding/json +jsonrpc):\n%s", m.Raw, diff)
	}
	if name, ok := m.Params.Name.Text(); ok {
		var text string
		if err := json.Unmarshal(params.Name, &text); err != nil || text != name {
			t.Errorf("name %q, encoding/json reads %q, %v", name, text, err)
		}
	}
}

var streamSeeds = []string{
	"event: message\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n",
	"id: s1\ndata:\n\nretry: 500\n\n: ping\n\ndata: a\ndata: b\n\n",
	"\ufeffdata: x\r\rdata: y\r\n\r\n: c\r: d\r\nid\n\nid:\n\n",
	"data\n\ndata:  x\nfoo: bar\n\nunfinished",
	"\r\n\r\n\n\r:\r\nid: \x00\n\n",
}

func FuzzEvents(f *testing.F) {
	for _, seed := range streamSeeds {
		f.Add([]byte(seed), 64)
	}
	f.Fuzz(func(t *testing.T, stream []byte, maxSize int) {
		events, err := readEvents(bytes.NewReader(stream), maxSize)
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, jsonrpc.ErrTooLarge) {
			t.Errorf("the stream ends with %v", err)
		}
		var written []byte
		for _, e := range events {
			if size := len(e.Name) + len(e.ID) + len(e.Data); size > maxSize {
				t.Errorf("an event of %d bytes, limit %d", size, maxSize)
			}
			written = jsonrpc.AppendEvent(written, e)
		}
		// AppendEvent omits an event that only sets the retry time to zero.
		events = slices.DeleteFunc(events, func(e jsonrpc.Event) bool { return cmp.Equal(e, jsonrpc.Event{}) })
		for i := range events {
			events[i].Name = strings.ReplaceAll(events[i].Name, "\x00", "")
		}
		again, err := readEvents(bytes.NewReader(written), len(written))
		if diff := cmp.Diff(events, again, cmpopts.EquateEmpty()); diff != "" || !errors.Is(err, io.EOF) {
			t.Errorf("%q\nwritten %q\nread again (-want +got):\n%s, error %v", stream, written, diff, err)
		}
	})
}

// EventIn returns the same event as an EventReader, and does not change the text.
func FuzzEventIn(f *testing.F) {
	for _, seed := range streamSeeds {
		f.Add([]byte(seed))
	}
	for _, seed := range []string{
		"data\n\n", "data:\n\n", "data: \r\r", "\ufeffdata: a\r\n\r\n", "data:a\ndata:b\n\nc", "data:a\ndata\n\n",
		"id: 7\n\ndata: a\n\n", ": c\n\ndata: a\n\n", "retry: x\n\n\n", "data: a\n", "data: a\r\n\r", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		want, err := jsonrpc.NewEventReader(bytes.NewReader(text), len(text)).Next()
		got, ok := jsonrpc.EventIn(text)
		if diff := cmp.Diff(want, got); diff != "" || ok != (err == nil) {
			t.Errorf("%q: %t, %v (-reader +in text):\n%s", text, ok, err, diff)
		}
		if !bytes.Equal(text, before) {
			t.Errorf("%q was changed to %q", before, text)
		}
	})
}

func FuzzFramer(f *testing.F) {
	for _, seed := range streamSeeds {
		f.Add(seed, []byte{1, 2, 3, 5, 8})
	}
	f.Fuzz(func(t *testing.T, stream string, sizes []byte) {
		if len(stream) > 1<<10 {
			return // the slow implementation is quadratic
		}
		var chunks []string
		for _, size := range sizes {
			n := min(int(size), len(stream))
			chunks, stream = append(chunks, stream[:n]), stream[n:]
		}
		checkFramer(t, append(chunks, stream))
	})
}

func FuzzLines(f *testing.F) {
	f.Add([]byte(normalCall+"\n"+normalCall+"\r\n"), 1<<10)
	f.Add([]byte("{}\n\n \t\r\n[\r1\r]\n{\"a\":1"), 4)
	f.Add([]byte("\n\u00a0\n0123456789\n01234567"), 8)
	f.Add(bytes.Repeat([]byte("x"), 5000), 4096)
	f.Fuzz(func(t *testing.T, stream []byte, maxSize int) {
		maxSize = max(maxSize, 0)
		var want []string
		for line := range bytes.SplitSeq(stream, []byte("\n")) {
			if len(line) > maxSize {
				want = append(want, "too large")
			} else if len(bytes.Trim(line, " \t\r")) > 0 {
				want = append(want, strings.TrimRight(string(line), "\r"))
			}
		}
		got, err := readLines(bytes.NewReader(stream), maxSize)
		if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, io.EOF) {
			t.Errorf("lines (-want +got):\n%s, error %v", diff, err)
		}
		line := jsonrpc.AppendLine(nil, stream)
		if got := bytes.IndexAny(line, "\r\n"); got != len(stream) || len(line) != len(stream)+1 {
			t.Errorf("a message of %d bytes is written as %q", len(stream), line)
		}
	})
}
