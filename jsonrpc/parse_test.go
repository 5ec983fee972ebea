package jsonrpc_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A view has the parts of a message that tests compare, as strings.
type view struct {
	Kind                                     jsonrpc.Kind
	Method, ID, Params, Result, Error        string
	Name, URI, TaskID, Task, Meta, Arguments string
}

func viewOf(m jsonrpc.Message) view {
	return view{
		Kind: m.Kind, Method: m.Method, ID: string(m.ID.Bytes),
		Params: string(m.Params.Bytes), Result: string(m.Result.Bytes), Error: string(m.Error.Bytes),
		Name: string(m.Params.Name.Bytes), URI: string(m.Params.URI.Bytes), TaskID: string(m.Params.TaskID.Bytes),
		Task: string(m.Params.Task.Bytes), Meta: string(m.Params.Meta.Bytes), Arguments: string(m.Params.Arguments.Bytes),
	}
}

func mustParse(t testing.TB, in string) jsonrpc.Packet {
	t.Helper()
	p, err := jsonrpc.Parse([]byte(in), jsonrpc.Limits{})
	if err != nil {
		t.Fatalf("Parse(%.200q): %v", in, err)
	}
	return p
}

func mustParseOne(t testing.TB, in string) jsonrpc.Message {
	t.Helper()
	p := mustParse(t, in)
	if p.Batch || len(p.Messages) != 1 {
		t.Fatalf("Parse(%.200q): batch %t of %d, want one message", in, p.Batch, len(p.Messages))
	}
	return p.Messages[0]
}

func TestParseAccepts(t *testing.T) {
	tests := []struct {
		name, in string
		want     view
	}{
		{
			"EC-MCP-001 F-001.1 request", normalCall,
			view{
				Kind: jsonrpc.Request, Method: "tools/call", ID: "42",
				Params:    normalCall[strings.Index(normalCall, `{"name"`) : len(normalCall)-1],
				Name:      `"read_file"`,
				Meta:      `{"progressToken":7}`,
				Arguments: `{"path":"/srv/data/report.txt","limit":200}`,
			},
		},
		{
			"request without params", `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
			view{Kind: jsonrpc.Request, Method: "ping", ID: "1"},
		},
		{
			"members in any order", `{"params":{"uri":"file:///a"},"method":"resources/read","id":"x","jsonrpc":"2.0"}`,
			view{Kind: jsonrpc.Request, Method: "resources/read", ID: `"x"`, Params: `{"uri":"file:///a"}`, URI: `"file:///a"`},
		},
		{
			"EC-MCP-004 F-001.3 notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			view{Kind: jsonrpc.Notification, Method: "notifications/initialized"},
		},
		{
			"EC-MCP-008 F-003.1 task-augmented request",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","arguments":{},"task":{"ttl":60000}}}`,
			view{
				Kind: jsonrpc.Request, Method: "tools/call", ID: "1",
				Params: `{"name":"n","arguments":{},"task":{"ttl":60000}}`,
				Name:   `"n"`, Arguments: `{}`, Task: `{"ttl":60000}`,
			},
		},
		{
			"task id", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"tg_1"}}`,
			view{Kind: jsonrpc.Request, Method: "tasks/get", ID: "1", Params: `{"taskId":"tg_1"}`, TaskID: `"tg_1"`},
		},
		{
			"members of other values are not those of params",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"name":"inner","id":9},"x":[{"name":1}]},"y":{"method":"z"}}`,
			view{
				Kind: jsonrpc.Request, Method: "m", ID: "1",
				Params:    `{"arguments":{"name":"inner","id":9},"x":[{"name":1}]}`,
				Arguments: `{"name":"inner","id":9}`,
			},
		},
		{
			"params as array", `{"jsonrpc":"2.0","id":1,"method":"m","params":[{"name":"n"}]}`,
			view{Kind: jsonrpc.Request, Method: "m", ID: "1", Params: `[{"name":"n"}]`},
		},
		{
			"params null", `{"jsonrpc":"2.0","id":1,"method":"m","params":null}`,
			view{Kind: jsonrpc.Request, Method: "m", ID: "1", Params: `null`},
		},
		{
			"empty params", `{"jsonrpc":"2.0","id":1,"method":"m","params":{ }}`,
			view{Kind: jsonrpc.Request, Method: "m", ID: "1", Params: `{ }`},
		},
		{
			"empty method", `{"jsonrpc":"2.0","id":1,"method":""}`,
			view{Kind: jsonrpc.Request, ID: "1"},
		},
		{
			"result", `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`,
			view{Kind: jsonrpc.Response, ID: "1", Result: `{"content":[]}`},
		},
		{
			"result null", `{"jsonrpc":"2.0","id":1,"result":null}`,
			view{Kind: jsonrpc.Response, ID: "1", Result: `null`},
		},
		{
			"error", `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`,
			view{Kind: jsonrpc.Response, ID: "1", Error: `{"code":-32601,"message":"no"}`},
		},
		{
			"error without id", `{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}`,
			view{Kind: jsonrpc.Response, Error: `{"code":-32700,"message":"no"}`},
		},
		{
			"error with id null", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`,
			view{Kind: jsonrpc.Response, ID: "null", Error: `{"code":-32700,"message":"no"}`},
		},
		{
			"names and values with escapes",
			`{"\u006asonrpc":"2\u002E0","i\u0064":1,"\u006dethod":"tools\/c\u0061ll","par\u0061ms":{"n\u0061me":"re\u0061d"}}`,
			view{
				Kind: jsonrpc.Request, Method: "tools/call", ID: "1",
				Params: `{"n\u0061me":"re\u0061d"}`, Name: `"re\u0061d"`,
			},
		},
		{
			"unicode", `{"jsonrpc":"2.0","id":"ключ","method":"é😀\ud83d\ude00","params":{"name":"名前"}}`,
			view{Kind: jsonrpc.Request, Method: "é😀😀", ID: `"ключ"`, Params: `{"name":"名前"}`, Name: `"名前"`},
		},
		{
			"escaped NUL in a string", `{"jsonrpc":"2.0","method":"a\u0000b"}`,
			view{Kind: jsonrpc.Notification, Method: "a\x00b"},
		},
		{
			"unknown members", `{"jsonrpc":"2.0","id":1,"method":"m","extra":[true,false,null,-1.5e+3],"":0,"ids":2}`,
			view{Kind: jsonrpc.Request, Method: "m", ID: "1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := mustParseOne(t, tt.in)
			if diff := cmp.Diff(tt.want, viewOf(m)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if string(m.Raw) != tt.in {
				t.Errorf("Raw = %s, want the input", m.Raw)
			}
		})
	}
}

// EC-MCP-013, EC-MCP-014, F-001.4: the bytes of an id do not change.
func TestParseKeepsID(t *testing.T) {
	ids := []string{
		`1`, `1.0`, `"1"`, `9007199254740993`, `""`, `-0`, `0`, `-1`, `1e3`, `1E+3`, `1.5`,
		`123456789012345678901234567890`, `"\u0031"`, `"a b"`, `"😀"`, `1e999`,
	}
	for _, id := range ids {
		t.Run(id, func(t *testing.T) {
			in := `{"jsonrpc":"2.0","id": ` + id + ` ,"method":"m"}`
			m := mustParseOne(t, in)
			if m.Kind != jsonrpc.Request || string(m.ID.Bytes) != id {
				t.Errorf("%s with id %s, want request with id %s", m.Kind, m.ID.Bytes, id)
			}
			if got := in[m.ID.Offset:][:len(id)]; got != id {
				t.Errorf("at the offset of the id is %q", got)
			}
			answer := string(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte("{}")))
			if want := `{"jsonrpc":"2.0","id":` + id + `,"result":{}}`; answer != want {
				t.Errorf("answer %s, want %s", answer, want)
			}
		})
	}
}

func TestParseWhiteSpace(t *testing.T) {
	const message = "{ \"jsonrpc\"\t:\r\n\"2.0\" , \"id\" : 1 ,\n\"method\" : \"m\" , \"params\" : { \"name\" : \"n\" } }"
	for _, around := range []string{"", " ", "\n", "\r\n\t  "} {
		m := mustParseOne(t, around+message+around)
		if string(m.Raw) != message {
			t.Errorf("Raw = %q, want the message without the white space around it", m.Raw)
		}
		if string(m.Params.Bytes) != `{ "name" : "n" }` || string(m.Params.Name.Bytes) != `"n"` {
			t.Errorf("params %q with name %q", m.Params.Bytes, m.Params.Name.Bytes)
		}
	}
}

// EC-MCP-005, F-001.2.
func TestParseBatch(t *testing.T) {
	const (
		call   = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n"}}`
		notice = `{"jsonrpc":"2.0","method":"notifications/x"}`
		answer = `{"jsonrpc":"2.0","id":"s","result":{}}`
	)
	in := " [ " + call + " ,\n" + notice + "," + answer + " ]\n"
	p := mustParse(t, in)
	if !p.Batch {
		t.Error("Batch is false")
	}
	var raw []string
	var kinds []jsonrpc.Kind
	for _, m := range p.Messages {
		raw, kinds = append(raw, string(m.Raw)), append(kinds, m.Kind)
	}
	if diff := cmp.Diff([]string{call, notice, answer}, raw); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]jsonrpc.Kind{jsonrpc.Request, jsonrpc.Notification, jsonrpc.Response}, kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	name := p.Messages[0].Params.Name
	if got := call[name.Offset : name.Offset+len(name.Bytes)]; got != `"n"` {
		t.Errorf("at the offset of the name is %q", got)
	}
	if one := mustParse(t, "["+call+"]"); !one.Batch || len(one.Messages) != 1 {
		t.Errorf("a batch of one is batch %t of %d", one.Batch, len(one.Messages))
	}
}

// Parse accepts a text of up to four of these pieces if and only if a general decoder accepts it.
func TestParseEveryShortValue(t *testing.T) {
	pieces := []string{
		`{`, `}`, `[`, `]`, `"`, `,`, `:`, `\`, ` `, `-`, `.`, `e`, `0`, `7`,
		`null`, `"a"`, `"\u0061"`, `\ud83d`, `\ude00`, "\x00", "é", "\xff",
	}
	depth := 4
	if testing.Short() {
		depth = 3
	}
	accepted := 0
	var try func(text string, left int)
	try = func(text string, left int) {
		in := []byte(`{"jsonrpc":"2.0","method":"m","x":` + text + `}`)
		_, err := jsonrpc.Parse(in, jsonrpc.Limits{})
		if want := jsontext.Value(in).IsValid(); err == nil != want {
			t.Errorf("%q: %v, but valid is %t", text, err, want)
		}
		if err == nil {
			accepted++
		}
		for _, p := range pieces {
			if left > 0 {
				try(text+p, left-1)
			}
		}
	}
	try("", depth)
	if accepted < 100 {
		t.Errorf("only %d texts were accepted", accepted)
	}
}

// Goroutines share scanners through a pool, also after a refusal.
func TestParseConcurrently(t *testing.T) {
	inputs := []string{
		normalCall,
		`{"a":{"b":[{"c":1,`,
		`{"jsonrpc":"2.0","id":1,"method":"m","\u0061":1,"a":2}`,
		`[` + normalCall + `,` + normalCall + `]`,
	}
	want := make([]string, len(inputs))
	for i, in := range inputs {
		want[i] = outcome(in)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 400 {
				k := (i + g) % len(inputs)
				if got := outcome(inputs[k]); got != want[k] {
					t.Errorf("%s: got %s, want %s", inputs[k], got, want[k])
				}
			}
		})
	}
	wg.Wait()
}

func outcome(in string) string {
	p, err := jsonrpc.Parse([]byte(in), jsonrpc.Limits{})
	out := fmt.Sprint(err)
	for _, m := range p.Messages {
		out += fmt.Sprint(viewOf(m))
	}
	return out
}

func TestParseAllocations(t *testing.T) {
	for name, in := range map[string][]byte{
		"call": []byte(normalCall), "string": stringCall(1024), "members": membersCall(20), "deep": deepCall(),
	} {
		got := testing.AllocsPerRun(100, func() {
			if _, err := jsonrpc.Parse(in, jsonrpc.Limits{}); err != nil {
				t.Fatal(err)
			}
		})
		if got > 4 {
			t.Errorf("Parse of %s allocates %v times, want at most 4", name, got)
		}
	}
}

func TestKindString(t *testing.T) {
	for kind, want := range map[jsonrpc.Kind]string{
		jsonrpc.Request: "request", jsonrpc.Notification: "notification", jsonrpc.Response: "response", 0: "invalid", 9: "invalid",
	} {
		if got := kind.String(); got != want {
			t.Errorf("Kind(%d) is %q, want %q", kind, got, want)
		}
	}
}

// Two ids are equal if and only if they have the same value, in whatever spelling.
func TestIDsAreEqualInAnySpelling(t *testing.T) {
	all := make(map[string]bool)
	for _, same := range [][]string{
		{`1e2`, `100`, `1E+2`, `100.0`, `0.1e3`, `1000e-1`},
		{`-0`, `0`, `0.00`, `-0e7`, `0e-3`},
		{`1.5`, `15e-1`, `1.50`},
		{`-12`, `-1.2e1`},
		{`9007199254740993`},
		{`9007199254740992`},
		{`"a"`, `"\u0061"`},
		{`"100"`},
		{`"1e2"`},
		{`1e400`, `10e399`},
		{`1e99999999999999999999`},
		{`1e99999999999999999998`},
		{`null`},
		{`12`},
		{`120`},
		{`1.2`},
		{``},
		{`"e"`},
		{`""`},
	} {
		for _, a := range same {
			for _, b := range same {
				if !jsonrpc.SameID([]byte(a), []byte(b)) {
					t.Errorf("%s and %s are different", a, b)
				}
			}
		}
		all[same[0]] = true
	}
	for a := range all {
		for b := range all {
			if (a == b) != jsonrpc.SameID([]byte(a), []byte(b)) {
				t.Errorf("%s and %s are equal", a, b)
			}
		}
	}
}
