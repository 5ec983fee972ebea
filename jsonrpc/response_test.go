package jsonrpc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A reading has the results of a ResponseReader for one message.
type reading struct {
	head    jsonrpc.Head
	id      string // from the head
	lastID  string
	begin   string
	payload string
	watched string
	err     error // nil if the message was read to its end
}

func readResponse(r io.Reader, window int) reading {
	reader := jsonrpc.NewResponseReader(r, "watched")
	if window > 0 {
		reader.SetWindow(window)
	}
	head, err := reader.Head()
	if err != nil {
		return reading{err: err}
	}
	got := reading{head: head, id: string(reader.ID().Bytes), begin: string(head.Begin.Bytes)}
	payload, err := io.ReadAll(reader)
	got.payload, got.err, got.lastID = string(payload), err, string(reader.ID().Bytes)
	got.watched = string(reader.Member("watched").Bytes)
	return got
}

// checkReading compares a reading with the result of Parse.
func checkReading(t failer, data []byte, got reading) {
	t.Helper()
	packet, err := jsonrpc.Parse(data, jsonrpc.Limits{})
	if err != nil {
		checkAccepted(t, data, err, got)
		return
	}
	m := packet.Messages[0]
	switch {
	case packet.Batch:
		if got.err == nil {
			t.Errorf("%q: a batch was accepted", data)
		}
	case m.Kind != jsonrpc.Response:
		if got.err == nil && (got.head.Kind != m.Kind || got.payload != "") {
			t.Errorf("%q: a %s was read as %+v", data, m.Kind, got)
		}
	default:
		checkSame(t, m, got)
	}
}

func checkSame(t failer, m jsonrpc.Message, got reading) {
	t.Helper()
	want, failed := m.Result, m.Error.Present()
	if failed {
		want = m.Error
	}
	watched := want.Member("watched").Bytes
	if len(watched) > 1<<10 {
		watched = nil
	}
	switch {
	case got.err != nil:
		t.Errorf("%.200q: %v", m.Raw, got.err)
	case got.head.Kind != jsonrpc.Response || got.head.Failed != failed:
		t.Errorf("%.200q: head is %+v", m.Raw, got.head)
	case got.payload != string(want.Bytes):
		t.Errorf("%.200q: the result was read as %.200q", m.Raw, got.payload)
	case got.lastID != string(m.ID.Bytes), got.id != "" && got.id != got.lastID:
		t.Errorf("%.200q: the id was read as %q, then %q", m.Raw, got.id, got.lastID)
	case got.watched != string(watched):
		t.Errorf("%.200q: the watched member was read as %q", m.Raw, got.watched)
	}
	for name, value := range (jsonrpc.Value{Bytes: []byte(got.begin)}).Members() {
		if in := want.Member(name); !bytes.Equal(in.Bytes, value.Bytes) {
			t.Errorf("%.200q: member %q begins as %q", m.Raw, name, value.Bytes)
		}
	}
}

// checkAccepted checks an accepted message that Parse refuses: it must be a response with a
// duplicate name, but not among its own members or those of its result.
func checkAccepted(t failer, data []byte, refusal error, got reading) {
	t.Helper()
	if got.err != nil || got.head.Kind != jsonrpc.Response {
		return
	}
	if refusal.Error() != "duplicate member name" || !jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true)) {
		t.Errorf("%q was accepted: %v", data, refusal)
		return
	}
	checkDistinct(t, string(data))
	checkDistinct(t, got.payload)
}

// checkDistinct checks that the names of an object are distinct.
func checkDistinct(t failer, object string) {
	t.Helper()
	dec := jsontext.NewDecoder(strings.NewReader(object), jsontext.AllowDuplicateNames(true))
	if dec.PeekKind() != '{' {
		return
	}
	_, _ = dec.ReadToken()
	names := map[string]bool{}
	for dec.PeekKind() == '"' {
		name, _ := dec.ReadToken()
		if names[name.String()] {
			t.Errorf("%q was accepted: two members %s", object, name)
		}
		names[name.String()] = true
		_ = dec.SkipValue()
	}
}

var responses = []string{
	`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}],"watched":true}}`,
	` { "jsonrpc" : "2.0" , "result" : { "watched" : "a\"b" , "a" : [ 1 , -2.5e+3 , null ] } , "id" : "x" } `,
	`{"error":{"code":-32000,"message":"no","data":{"watched":[1]},"watched":[ {} ]},"id":7,"jsonrpc":"2.0"}`,
	`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}`,
	`{"jsonrpc":"2.0","id":1,"result":5}`, `{"jsonrpc":"2.0","id":1,"result":"a\ud83d\ude00é😀\\"}`,
	`{"jsonrpc":"2.0","id":1,"result":{"a":"x` + strings.Repeat("é", 60) + strings.Repeat("😀", 60) + strings.Repeat(`\ud83d\ude00`, 20) + `y"}}`,
	`{"jsonrpc":"2.0","id":1,"result":[{"watched":1},[]]}`, `{"jsonrpc":"2.0","id":1,"result":{}}`,
	`{"\u006asonrpc":"2\u002e0","\u0069d":-0,"re\u0073ult":{"w\u0061tched":"\ud83d\ude00"}}`,
	`{"x":{"id":3,"id":3},"jsonrpc":"2.0","id":1,"result":{"a":{"b":1,"b":2}}}`,
	`{"jsonrpc":"2.0","id":1,"result":{"a":{"b":1,"b":2}}}`, `{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`,
	`{"jsonrpc":"2.0","id":1,"id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{},"result":{}}`,
	`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, `{"jsonrpc":"2.0","id":1,"error":{},"result":{}}`,
	`{"jsonrpc":"2.0","id":1,"error":[]}`, `{"jsonrpc":"2.0","id":1,"result":{},"params":{}}`,
	`{"jsonrpc":"2.0","id":1,"result":{},"ID":2}`, `{"jsonrpc":"1.0","id":1,"result":{}}`, `{"id":1,"result":{}}`,
	`{"jsonrpc":"2.0","id":{},"result":{}}`, `{"jsonrpc":"2.0","result":{}}`, `{"jsonrpc":"2.0","id":1}`,
	`{"jsonrpc":"2.0","id":1,"result":{}} x`, `{"jsonrpc":"2.0","id":1,"result":{}`, `{"jsonrpc":"2.0","id":1,"result":{"a":"`,
	`{"jsonrpc":"2.0","id":1,"result":{"a":"` + "\xff" + `"}}`, `{"jsonrpc":"2.0","id":1,"result":{"a":"\ud800"}}`,
	`{"jsonrpc":"2.0","id":1,"result":{"a":01}}`, `{"jsonrpc":"2.0","id":1,"result":[1,]}`, `{"jsonrpc":"2.0","id":1,"result":{"a"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`, `{"jsonrpc":"2.0","method":"m"}`,
	`{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`,
	`[{"jsonrpc":"2.0","id":1,"result":{}}]`, `[]`, `5`, `"x"`, ``, ` `, `nul`, "\ufeff{}", `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 200),
	`{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 126) + strings.Repeat("]", 126) + `}`,
	`{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 128) + strings.Repeat("]", 128) + `}`,
}

// TestResponseReader reads every message, and every variant with one byte removed, added or
// replaced, in one piece and byte by byte.
func TestResponseReader(t *testing.T) {
	for _, message := range responses {
		variants := [][]byte{[]byte(message)}
		for i := range len(message) {
			if len(message) > 200 {
				break
			}
			variants = append(variants, []byte(message[:i]), []byte(message[:i]+message[i+1:]))
			for _, c := range `"{}[],:\ x1` + "\x00\xc3" {
				variants = append(variants, []byte(message[:i]+string(c)+message[i:]), []byte(message[:i]+string(c)+message[i+1:]))
			}
		}
		for _, data := range variants {
			checkReading(t, data, readResponse(bytes.NewReader(data), 0))
			checkReading(t, data, readResponse(iotest.OneByteReader(bytes.NewReader(data)), 0))
		}
	}
}

// A window of a few bytes slides over a small message like a window of 64 KiB over a huge one.
func TestResponseReaderWindow(t *testing.T) {
	for _, message := range responses {
		for window := 20; window < 80; window++ {
			for _, r := range []io.Reader{strings.NewReader(message), iotest.OneByteReader(strings.NewReader(message)), iotest.DataErrReader(strings.NewReader(message))} {
				got := readResponse(r, window)
				if errors.Is(got.err, jsonrpc.ErrTooLarge) {
					t.Errorf("%q in %d bytes: %v", message, window, got.err)
				}
				checkReading(t, []byte(message), got)
			}
		}
	}
}

func TestResponseReaderProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var value func(depth int) string
		str := rapid.Map(rapid.String(), func(s string) string { return string(jsonrpc.AppendString(nil, s)) })
		value = func(depth int) string {
			kind := rapid.IntRange(0, 6).Draw(t, "kind")
			if depth == 0 {
				kind %= 4
			}
			switch kind {
			case 0:
				return rapid.StringMatching(`-?(0|[1-9][0-9]{0,9})(\.[0-9]{1,5})?([eE][-+]?[0-9]{1,2})?`).Draw(t, "number")
			case 1:
				return rapid.SampledFrom([]string{"true", "false", "null", "{}", "[]", `"\ud83d\ude00\n\u00e9"`}).Draw(t, "literal")
			case 2, 3:
				return str.Draw(t, "string")
			case 4:
				items := make([]string, rapid.IntRange(0, 4).Draw(t, "items"))
				for i := range items {
					items[i] = value(depth - 1)
				}
				return "[" + strings.Join(items, " ,\n") + "]"
			default:
				items := make([]string, rapid.IntRange(0, 4).Draw(t, "members"))
				for i := range items {
					name := rapid.OneOf(str, rapid.Just(`"watched"`), rapid.Just(`"resultType"`)).Draw(t, "name")
					items[i] = name + " : " + value(depth-1)
				}
				return "{ " + strings.Join(items, ",") + "}"
			}
		}
		members := []string{
			`"jsonrpc":"2.0"`, `"id":` + rapid.SampledFrom([]string{`1`, `"a"`, `-5`, `null`}).Draw(t, "id"),
			rapid.SampledFrom([]string{`"result"`, `"result"`, `"error"`}).Draw(t, "payload") + ":" + value(4),
		}
		members = rapid.Permutation(members).Draw(t, "order")
		if rapid.Bool().Draw(t, "more") {
			members = append(members, `"extra":`+value(2))
		}
		data := []byte("{" + strings.Join(members, ",") + "}")
		window := rapid.IntRange(64, 200).Draw(t, "window")
		got := readResponse(&choppy{data: data, sizes: rapid.SliceOfN(rapid.IntRange(1, 40), 1, 8).Draw(t, "sizes")}, window)
		if errors.Is(got.err, jsonrpc.ErrTooLarge) {
			return // a name longer than this window
		}
		checkReading(t, data, got)
	})
}

// choppy returns its data in pieces of the given sizes, which it repeats.
type choppy struct {
	data  []byte
	sizes []int
	n     int
}

func (c *choppy) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	size := min(c.sizes[c.n%len(c.sizes)], len(p), len(c.data))
	c.n++
	copy(p, c.data[:size])
	c.data = c.data[size:]
	return size, nil
}

func FuzzResponseReader(f *testing.F) {
	for _, seed := range responses {
		f.Add([]byte(seed), byte(7))
	}
	f.Fuzz(func(t *testing.T, data []byte, size byte) {
		checkReading(t, data, readResponse(bytes.NewReader(data), 0))
		got := readResponse(&choppy{data: bytes.Clone(data), sizes: []int{1 + int(size)}}, 256)
		if !errors.Is(got.err, jsonrpc.ErrTooLarge) {
			checkReading(t, data, got)
		}
	})
}

// The members in the first 64 KiB are known before the rest arrives, and the result is never in
// memory as a whole.
func TestResponseReaderHead(t *testing.T) {
	huge := strings.Repeat("x", 200<<10)
	tests := []struct {
		name, message string
		want          jsonrpc.Head
		id, begin     string
	}{
		{
			"the id comes first", `{"jsonrpc":"2.0","id":7,"result":{"resultType":"task","a":"` + huge + `","b":1}}`,
			jsonrpc.Head{Kind: jsonrpc.Response},
			"7",
			`{"resultType":"task"}`,
		},
		{
			"the id comes last", `{"result":{"a":[1,{}],"b":"` + huge + `","resultType":"task"},"id":7,"jsonrpc":"2.0"}`,
			jsonrpc.Head{Kind: jsonrpc.Response},
			"",
			`{"a":[1,{}]}`,
		},
		{
			"an error", `{"id":7,"error":{"message":"` + huge + `"},"jsonrpc":"2.0"}`,
			jsonrpc.Head{Kind: jsonrpc.Response, Failed: true},
			"7",
			`{}`,
		},
		{
			"a result that is an array", `{"id":7,"result":["` + huge + `"],"jsonrpc":"2.0"}`,
			jsonrpc.Head{Kind: jsonrpc.Response},
			"7",
			``,
		},
		{
			"much before the result", `{"x":"` + huge + `","id":7,"result":{"a":1},"jsonrpc":"2.0"}`,
			jsonrpc.Head{Kind: jsonrpc.Response},
			"7",
			`{"a":1}`,
		},
		{
			"another message", `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + huge + `"}}`,
			jsonrpc.Head{Kind: jsonrpc.Notification},
			"",
			``,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := readResponse(strings.NewReader(tt.message), 0)
			if got.begin != tt.begin || got.id != tt.id {
				t.Errorf("begins with %q, id %q; want %q, id %q", got.begin, got.id, tt.begin, tt.id)
			}
			got.head.Begin = jsonrpc.Value{}
			if diff := cmp.Diff(tt.want, got.head); diff != "" {
				t.Errorf("head (-want +got):\n%s", diff)
			}
			if tt.want.Kind == jsonrpc.Response {
				checkReading(t, []byte(tt.message), got)
			}
		})
	}
}

func TestResponseReaderTooLarge(t *testing.T) {
	long := strings.Repeat("1", 100<<10)
	for name, message := range map[string]string{
		"number":     `{"jsonrpc":"2.0","id":1,"result":{"a":` + long + `}}`,
		"name":       `{"jsonrpc":"2.0","id":1,"result":{"` + long + `":1}}`,
		"id":         `{"jsonrpc":"2.0","result":{},"id":"` + long + `"}`,
		"id, before": `{"jsonrpc":"2.0","id":` + long + `,"result":{}}`,
	} {
		if got := readResponse(strings.NewReader(message), 0); !errors.Is(got.err, jsonrpc.ErrTooLarge) {
			t.Errorf("%s: error %v", name, got.err)
		}
	}
}

// A truncated answer causes an error.
func TestResponseReaderBreaksOff(t *testing.T) {
	broken := errors.New("connection reset")
	message := `{"jsonrpc":"2.0","id":1,"result":{"content":["` + strings.Repeat("é", 100<<10) + `"]}} `
	for _, cut := range []int{0, 1, 20, 33, 70 << 10, 150<<10 + 1, len(message) - 2, len(message) - 1, len(message)} {
		got := readResponse(io.MultiReader(strings.NewReader(message[:cut]), iotest.ErrReader(broken)), 0)
		if !errors.Is(got.err, broken) {
			t.Errorf("cut at %d: error %v", cut, got.err)
		}
		if !strings.HasPrefix(`{"content":["`+strings.Repeat("é", 100<<10)+`"]}`, got.payload) {
			t.Errorf("cut at %d: %d other bytes", cut, len(got.payload))
		}
	}
}

func ExampleResponseReader() {
	answer := `{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}`
	r := jsonrpc.NewResponseReader(strings.NewReader(answer), "isError")
	head, err := r.Head()
	fmt.Println(head.Kind, string(r.ID().Bytes), err)
	result, err := io.ReadAll(r)
	fmt.Println(string(result), err, r.Member("isError").IsTrue())
	// Output:
	// response 1 <nil>
	// {"content":[],"isError":true} <nil> true
}

// An ObjectReader passes on every object unchanged, and refuses everything else.
func TestObjectReader(t *testing.T) {
	huge := `{"a":["` + strings.Repeat("é\\n", 50<<10) + `",{"isError":true}],"isError": true, "z":{}}`
	tests := map[string]string{ // the expected isError
		`{}`: "", "\n" + `{"isError":true}`: "true", `{"is\u0045rror":"x"}`: `"x"`, huge: "true",
		`{"a":{"isError":true},"b":["isError",true],"isError":false,"c":true}`: "false",
	}
	for object, want := range tests {
		r := jsonrpc.NewObjectReader(iotest.HalfReader(strings.NewReader(object)), "isError")
		got, err := io.ReadAll(r)
		if err != nil || string(got) != strings.TrimSpace(object) || string(r.Member("isError").Bytes) != want {
			t.Errorf("%.100q: %.100q with isError %q, %v", object, got, r.Member("isError").Bytes, err)
		}
	}
	for _, bad := range []string{``, `[]`, `"x"`, `{`, `{} x`, `{}{}`, huge + `}`, huge[:len(huge)-1], `{"a":1,"a":2}`, `{"a":'x'}`} {
		if got, err := io.ReadAll(jsonrpc.NewObjectReader(strings.NewReader(bad))); err == nil {
			t.Errorf("%.100q was passed on as %.100q", bad, got)
		}
	}
}

// White space may have any length, because servers send it to keep a connection alive.
func TestResponseReaderAcceptsLongWhiteSpace(t *testing.T) {
	space := strings.Repeat(" \n\t\r", 50<<10)
	message := space + `{` + space + `"jsonrpc":` + space + `"2.0"` + space + `,"id":1,"result":` + space + `{"a":[` + space + `],"watched":` + space + `true` + space + `}` + space + `}` + space
	checkReading(t, []byte(message), readResponse(strings.NewReader(message), 0))
	for _, json := range []string{"", "1"} {
		e := jsonrpc.MemberEdit{Outer: "_meta", Inner: "k"}
		want := `{"a":[],"_meta":{"b":2}}`
		if json != "" {
			e.JSON, want = []byte(json), `{"a":[],"_meta":{"k":1,"b":2}}`
		}
		got, err := edited(e, space+`{"a":[`+space+`],`+space+`"_meta":`+space+`{`+space+`"k":`+space+`{}`+space+`,"b":2`+space+`}`+space+`}`+space)
		v := jsontext.Value(got)
		if err := errors.Join(err, v.Compact()); err != nil || string(v) != want {
			t.Errorf("edited: %.200q, %v; want %s", v, err, want)
		}
	}
}
