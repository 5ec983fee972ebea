package jsonrpc_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// refused parses in, which must be refused, and returns the error.
func refused(t testing.TB, in string, limits jsonrpc.Limits) *jsonrpc.ParseError {
	t.Helper()
	p, err := jsonrpc.Parse([]byte(in), limits)
	refusal, ok := errors.AsType[*jsonrpc.ParseError](err)
	if !ok {
		t.Fatalf("Parse(%.200q) = %v, %v, want a refusal", in, p, err)
	}
	if p.Messages != nil || p.Batch {
		t.Errorf("Parse(%.200q) refuses and returns %v", in, p)
	}
	return refusal
}

// Parse errors, -32700: EC-MCP-002, F-001.5.
func TestParseRefusesText(t *testing.T) {
	const (
		incomplete = "incomplete JSON"
		syntax     = "not valid JSON"
		encoding   = "not valid UTF-8"
		surrogate  = "half of a surrogate pair"
		duplicate  = "duplicate member name"
		byCase     = "a member name differs from a known one only by case"
		trailing   = "bytes after the end of the JSON value"
	)
	const ok = `{"jsonrpc":"2.0","id":1,"method":"m"}`
	tests := []struct{ name, in, want string }{
		{"nothing", "", incomplete},
		{"only white space", " \r\n\t", incomplete},
		{"open object", "{", incomplete},
		{"cut in a name", `{"jsonr`, incomplete},
		{"cut after a name", `{"jsonrpc"`, incomplete},
		{"cut after a colon", `{"jsonrpc":`, incomplete},
		{"cut in a string", `{"jsonrpc":"2.`, incomplete},
		{"cut in an escape", `{"jsonrpc":"\`, incomplete},
		{"cut in a unicode escape", `{"jsonrpc":"\u00`, incomplete},
		{"cut in a literal", `{"a":tru`, incomplete},
		{"cut in a number", `{"a":-`, incomplete},
		{"cut after a comma", `{"a":1,`, incomplete},
		{"open batch", "[" + ok, incomplete},
		{"no JSON", "hello", syntax},
		{"single quotes", `{'jsonrpc':'2.0'}`, syntax},
		{"comma before the end of an object", `{"jsonrpc":"2.0","method":"m",}`, syntax},
		{"comma before the end of an array", "[" + ok + ",]", syntax},
		{"comma at the start of an object", `{,"jsonrpc":"2.0"}`, syntax},
		{"comma at the start of an array", `[,]`, syntax},
		{"two commas", `[` + ok + `,,` + ok + `]`, syntax},
		{"no comma", `[` + ok + ` ` + ok + `]`, syntax},
		{"no colon", `{"jsonrpc" "2.0"}`, syntax},
		{"two colons", `{"jsonrpc"::"2.0"}`, syntax},
		{"wrong bracket", `{"jsonrpc":"2.0"]`, syntax},
		{"wrong bracket inside", `{"a":[1}`, syntax},
		{"name without quotes", `{jsonrpc:"2.0"}`, syntax},
		{"number as name", `{1:2}`, syntax},
		{"comment", `{"jsonrpc":"2.0"/**/}`, syntax},
		{"NaN", `{"a":NaN}`, syntax},
		{"True", `{"a":True}`, syntax},
		{"longer literal", `{"a":nullx}`, syntax},
		{"leading zero", `{"id":01}`, syntax},
		{"leading plus", `{"id":+1}`, syntax},
		{"no digit before the point", `{"id":.5}`, syntax},
		{"no digit after the point", `{"id":1.}`, syntax},
		{"no digit in the exponent", `{"id":1e}`, syntax},
		{"hexadecimal", `{"id":0x1}`, syntax},
		{"minus alone", `{"id":-}`, syntax},
		{"line break in a string", "{\"a\":\"\n\"}", syntax},
		{"NUL in a string", "{\"a\":\"\x00\"}", syntax},
		{"NUL between tokens", "{\"a\":\x001}", syntax},
		{"NUL alone", "\x00", syntax},
		{"form feed as white space", "{\f}", syntax},
		{"no-break space as white space", "{\u00a0}", syntax},
		{"unknown escape", `{"a":"\x"}`, syntax},
		{"upper-case unicode escape", `{"a":"\U0041"}`, syntax},
		{"bad unicode escape", `{"a":"\u00g0"}`, syntax},
		{"byte order mark", "\ufeff" + ok, syntax},
		{"invalid byte in a value", "{\"a\":\"\xff\"}", encoding},
		{"invalid byte in a name", "{\"a\xff\":1}", encoding},
		{"cut character", "{\"a\":\"\xe2\x82\"}", encoding},
		{"overlong character", "{\"a\":\"\xc0\xaf\"}", encoding},
		{"encoded surrogate", "{\"a\":\"\xed\xa0\x80\"}", encoding},
		{"beyond unicode", "{\"a\":\"\xf4\x90\x80\x80\"}", encoding},
		{"high surrogate alone", `{"a":"\ud800"}`, surrogate},
		{"low surrogate alone", `{"a":"\udc00"}`, surrogate},
		{"high surrogate and a character", `{"a":"\ud800\u0041"}`, surrogate},
		{"two high surrogates", `{"a":"\ud800\ud800"}`, surrogate},
		{"surrogates the wrong way round", `{"a":"\udc00\ud800"}`, surrogate},
		{"surrogate alone in a name", `{"\ud800":1}`, surrogate},
		{"duplicate of id", `{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}`, duplicate},
		{"duplicate of an unknown name", `{"jsonrpc":"2.0","x":1,"method":"m","x":1}`, duplicate},
		{"duplicate empty name", `{"jsonrpc":"2.0","":1,"method":"m","":1}`, duplicate},
		{"duplicate of method by escapes", `{"jsonrpc":"2.0","id":1,"method":"a","\u006dethod":"b"}`, duplicate},
		{"duplicate by two kinds of escapes", `{"jsonrpc":"2.0","id":1,"\u006dethod":"a","m\u0065thod":"b"}`, duplicate},
		{"duplicate by surrogates", `{"jsonrpc":"2.0","method":"m","😀":1,"\ud83d\ude00":2}`, duplicate},
		{"duplicate in params", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","name":"b"}}`, duplicate},
		{"duplicate in params by escapes", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","n\u0061me":"b"}}`, duplicate},
		{"duplicate deep in arguments", string(callWith(`{"a":[0,{"b":{"c":[[{"k":1,"l":2,"k":3}]]}}]}`)), duplicate},
		{"duplicate in a result", `{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":1}}`, duplicate},
		{"duplicate in an unknown member", `{"jsonrpc":"2.0","method":"m","x":[{"a":1,"a":1}]}`, duplicate},
		{"duplicate in the second of a batch", "[" + ok + `,{"jsonrpc":"2.0","method":"m","method":"m"}]`, duplicate},
		{"variant of method", `{"jsonrpc":"2.0","id":1,"Method":"m"}`, byCase},
		{"variant of jsonrpc", `{"jsonrpc":"2.0","id":1,"method":"m","JSONRPC":"2.0"}`, byCase},
		{"variant of id", `{"jsonrpc":"2.0","id":1,"method":"m","ID":2}`, byCase},
		{"variant of params with long s", `{"jsonrpc":"2.0","id":1,"method":"m","paramſ":{}}`, byCase},
		{"variant of params with escaped long s", `{"jsonrpc":"2.0","id":1,"method":"m","param\u017f":{}}`, byCase},
		{"variant of result", `{"jsonrpc":"2.0","id":1,"Result":{}}`, byCase},
		{"variant of error", `{"jsonrpc":"2.0","id":1,"ERROR":{}}`, byCase},
		{"variant of name", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"read","NAME":"drop"}}`, byCase},
		{"variant of uri", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"URI":"x"}}`, byCase},
		{"variant of taskId", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"taskid":"x"}}`, byCase},
		{"variant of taskId with Kelvin sign", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"tasKId":"x"}}`, byCase},
		{"variant of task with long s and Kelvin sign", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"taſK":{}}}`, byCase},
		{"variant of task with escaped Kelvin sign", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"tas\u212A":{}}}`, byCase},
		{"variant of _meta", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_Meta":{}}}`, byCase},
		{"variant of arguments", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"Arguments":{}}}`, byCase},
		{"second message", ok + ok, trailing},
		{"second message on a line of its own", ok + "\n" + ok, trailing},
		{"bracket too many", ok + "}", trailing},
		{"comma after the message", ok + ",", trailing},
		{"NUL after the message", ok + "\x00", trailing},
		{"zero after zero", "00", trailing},
		// Invalid JSON is reported as such, even after another defect.
		{"wrong shape, then syntax", `{"jsonrpc":"1.0","id":1,"method":7}x`, trailing},
		{"wrong shape in a batch, then syntax", `[{"id":1},{"id":}]`, syntax},
		{"no object, then syntax", `["x",`, incomplete},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := refused(t, tt.in, jsonrpc.Limits{})
			if got.Code != jsonrpc.CodeParse || got.Error() != tt.want {
				t.Errorf("refused with %d %q, want %d %q", got.Code, got, jsonrpc.CodeParse, tt.want)
			}
		})
	}
}

// Invalid requests, -32600: F-001.6.
func TestParseRefusesShape(t *testing.T) {
	const (
		version = `jsonrpc must be "2.0"`
		object  = "a message must be an object"
		id      = "id must be a string or a number"
		neither = "a message has a method, a result or an error"
		both    = "a message with a method has no result and no error"
		params  = "params must be an object or an array"
		proto   = "a member is called __proto__, which some servers read as members of the object around it"
		cut     = "the name of a member has U+0000 in it, where some servers end it"
	)
	tests := []struct{ name, in, want, wantID string }{
		{"EC-MCP-003 no jsonrpc", `{"id":1,"method":"m"}`, version, "1"},
		{"jsonrpc 1.0", `{"jsonrpc":"1.0","id":1,"method":"m"}`, version, "1"},
		{"jsonrpc as number", `{"jsonrpc":2.0,"id":1,"method":"m"}`, version, "1"},
		{"jsonrpc null", `{"jsonrpc":null,"id":"x","method":"m"}`, version, `"x"`},
		{"jsonrpc with a blank", `{"jsonrpc":"2.0 ","method":"m"}`, version, ""},
		{"empty object", `{}`, version, ""},
		{"EC-MCP-006 empty batch", `[ ]`, "empty batch", ""},
		{"string", `"x"`, object, ""},
		{"number", `1`, object, ""},
		{"null", `null`, object, ""},
		{"batch of numbers", `[1,2]`, object, ""},
		{"nested batch", `[[{"jsonrpc":"2.0","id":1,"method":"m"}]]`, object, ""},
		{"one bad message in a batch", `[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":1}]`, "method must be a string", "2"},
		{"method as number", `{"jsonrpc":"2.0","id":1,"method":1}`, "method must be a string", "1"},
		{"method null", `{"jsonrpc":"2.0","id":1,"method":null}`, "method must be a string", "1"},
		{"method and result", `{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`, both, "1"},
		{"method and error", `{"jsonrpc":"2.0","id":1,"method":"m","error":{}}`, both, "1"},
		{"params as string", `{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}`, params, "1"},
		{"params as number", `{"jsonrpc":"2.0","id":1,"method":"m","params":1}`, params, "1"},
		{"params true", `{"jsonrpc":"2.0","id":1,"method":"m","params":true}`, params, "1"},
		{"prototype of a message", `{"jsonrpc":"2.0","id":1,"method":"m","__proto__":{}}`, proto, "1"},
		{"prototype of a response", `{"jsonrpc":"2.0","id":1,"result":{},"__proto__":{"method":"m"}}`, proto, "1"},
		{"prototype of params", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"__proto__":{}}}`, proto, "1"},
		{"prototype deep inside, escaped", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[{"__pr\u006fto__":1}]}}`, proto, "1"},
		{"prototype in a batch", `[{"jsonrpc":"2.0","id":1,"method":"m","params":{"__proto__":{}}},{"jsonrpc":"2.0","id":2,"method":"m"}]`, proto, "1"},
		{"U+0000 in a name", `{"jsonrpc":"2.0","id":1,"method\u0000":"m","method":"n"}`, cut, "1"},
		{"U+0000 in a name of a response", `{"jsonrpc":"2.0","id":1,"result\u0000":{},"result":{}}`, cut, "1"},
		{"U+0000 in a name of params", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name\u0000x":1}}`, cut, "1"},
		{"U+0000 in a name deep inside", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[{"\u0000":1}]}}`, cut, "1"},
		{"U+0000 in a name in a batch", `[{"jsonrpc":"2.0","id":1,"method":"m","params":{"a\u0000":{}}},{"jsonrpc":"2.0","id":2,"method":"m"}]`, cut, "1"},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"m"}`, id, ""},
		{"id true", `{"jsonrpc":"2.0","id":true,"method":"m"}`, id, ""},
		{"id as object", `{"jsonrpc":"2.0","id":{},"method":"m"}`, id, ""},
		{"id as array", `{"jsonrpc":"2.0","id":[1],"method":"m"}`, id, ""},
		{"neither method nor result nor error", `{"jsonrpc":"2.0","id":1}`, neither, "1"},
		{"result and error", `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, neither, "1"},
		{"response with params", `{"jsonrpc":"2.0","id":1,"result":{},"params":{}}`, "a response has no params", "1"},
		{"error as string", `{"jsonrpc":"2.0","id":1,"error":"x"}`, "error must be an object", "1"},
		{"error null", `{"jsonrpc":"2.0","id":1,"error":null}`, "error must be an object", "1"},
		{"result without id", `{"jsonrpc":"2.0","result":{}}`, id, ""},
		{"result with id null", `{"jsonrpc":"2.0","id":null,"result":{}}`, id, ""},
		{"error with id false", `{"jsonrpc":"2.0","id":false,"error":{}}`, id, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := refused(t, tt.in, jsonrpc.Limits{})
			if got.Code != jsonrpc.CodeInvalidRequest || got.Error() != tt.want {
				t.Errorf("refused with %d %q, want %d %q", got.Code, got, jsonrpc.CodeInvalidRequest, tt.want)
			}
			if string(got.ID.Bytes) != tt.wantID {
				t.Errorf("id %q, want %q", got.ID.Bytes, tt.wantID)
			}
		})
	}
}

// The gate does not judge results, so they may have a member __proto__.
func TestPrototypeInResult(t *testing.T) {
	in := `[{"jsonrpc":"2.0","id":1,"result":{"__proto__":{"a\u0000":1}}},{"jsonrpc":"2.0","id":2,"method":"m"}]`
	if _, err := jsonrpc.Parse([]byte(in), jsonrpc.Limits{}); err != nil {
		t.Error(err)
	}
}

// A ParseError has the id of the message only if the id is certain.
func TestParseErrorID(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"duplicate in params", `{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":1,"a":1}}`, "7"},
		{"variant in params", `{"jsonrpc":"2.0","id":"x","method":"m","params":{"Name":1}}`, `"x"`},
		{"white space after the id", `{"id":7 ,"a":}`, "7"},
		{"syntax error in the second of a batch", `[{"id":1},{"id":2,"a":}]`, "2"},
		{"id after the error", `{"a":},"id":7}`, ""},
		{"id null", `{"id":null,"a":}`, ""},
		{"duplicate of id", `{"id":1,"id":2}`, ""},
		{"variant of id", `{"id":1,"ID":2}`, ""},
		{"cut in the id", `{"id":12`, ""},
		{"id and more", `{"id":12x}`, ""},
		{"after the message", `{"jsonrpc":"2.0","id":7,"method":"m"}}`, ""},
		{"between the messages of a batch", `[{"id":1}:{"id":2}]`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := refused(t, tt.in, jsonrpc.Limits{})
			if got.Code != jsonrpc.CodeParse || string(got.ID.Bytes) != tt.want {
				t.Errorf("refused with %d, id %q, want %d, id %q", got.Code, got.ID.Bytes, jsonrpc.CodeParse, tt.want)
			}
			message := tt.in[strings.LastIndexByte(tt.in, '{'):]
			if strings.Contains(tt.name, "in params") {
				message = tt.in
			}
			if got.ID.Present() && !strings.HasPrefix(message[got.ID.Offset:], tt.want) {
				t.Errorf("offset %d is not that of the id", got.ID.Offset)
			}
		})
	}
}

func TestParseErrorHidesContent(t *testing.T) {
	const secret = "s3cr3t"
	for _, in := range []string{
		`{"` + secret + `":1,"` + secret + `":2}`,
		`{"jsonrpc":"` + secret + `"}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":"` + secret + `"}`,
		secret,
	} {
		if got := refused(t, in, jsonrpc.Limits{}); strings.Contains(got.Error(), secret) {
			t.Errorf("the error repeats the message: %v", got)
		}
	}
}

func TestParseDepth(t *testing.T) {
	// around returns a message whose params begin at depth 2.
	around := func(params string) string { return `{"jsonrpc":"2.0","id":1,"method":"m","params":` + params + `}` }
	arrays := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	objects := func(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) }
	tests := []struct {
		name, in string
		limit    int
		want     bool
	}{
		{"arrays to 128", around(arrays(127)), 0, true},
		{"arrays to 129", around(arrays(128)), 0, false},
		{"objects to 128", around(objects(127)), 0, true},
		{"objects to 129", around(objects(128)), 0, false},
		{"a batch counts", "[" + around(arrays(126)) + "]", 0, true},
		{"a batch counts too much", "[" + around(arrays(127)) + "]", 0, false},
		{"brackets in strings", around(`["` + strings.Repeat("[{", 1000) + `"]`), 0, true},
		{"brackets after an escaped quote", around(`["\"` + strings.Repeat("[{", 1000) + `"]`), 0, true},
		{"many brackets side by side", around("[" + strings.Repeat("[],{},[{}],", 1000) + "0]"), 0, true},
		{"own limit", around(arrays(2)), 3, true},
		{"over the own limit", around(arrays(3)), 3, false},
		{"message at limit 1", `{"jsonrpc":"2.0","method":"m"}`, 1, true},
		{"params at limit 1", around("{}"), 1, false},
		{"so deep that a recursion would be costly", around(arrays(200_000)), 1 << 20, true},
		{"only opening brackets", strings.Repeat("[", 1<<20), 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := jsonrpc.Parse([]byte(tt.in), jsonrpc.Limits{Depth: tt.limit})
			if err == nil != tt.want {
				t.Fatalf("Parse: %v, want accepted %t", err, tt.want)
			}
			if tt.want {
				return
			}
			got := refused(t, tt.in, jsonrpc.Limits{Depth: tt.limit})
			if got.Code != jsonrpc.CodeParse || got.Error() != "nested too deeply" {
				t.Errorf("refused with %d %q", got.Code, got)
			}
		})
	}
}

func TestParseBatchLimit(t *testing.T) {
	batch := func(n int) string {
		return "[" + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"m"},`, n-1) + `{"jsonrpc":"2.0","id":1,"method":"m"}]`
	}
	tests := []struct {
		n, limit int
		want     string
	}{
		{jsonrpc.DefaultBatch, 0, ""},
		{jsonrpc.DefaultBatch + 1, 0, "batch of more than 50 messages"},
		{3, 3, ""},
		{4, 3, "batch of more than 3 messages"},
		{500, 500, ""},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d of %d", tt.n, tt.limit), func(t *testing.T) {
			if tt.want == "" {
				p, err := jsonrpc.Parse([]byte(batch(tt.n)), jsonrpc.Limits{Batch: tt.limit})
				if err != nil || len(p.Messages) != tt.n {
					t.Errorf("%d messages, %v", len(p.Messages), err)
				}
				return
			}
			got := refused(t, batch(tt.n), jsonrpc.Limits{Batch: tt.limit})
			if got.Code != jsonrpc.CodeInvalidRequest || got.Error() != tt.want {
				t.Errorf("refused with %d %q, want %q", got.Code, got, tt.want)
			}
		})
	}
	t.Run("invalid syntax after the limit is reported", func(t *testing.T) {
		got := refused(t, strings.TrimSuffix(batch(9), "]")+",}", jsonrpc.Limits{Batch: 3})
		if got.Code != jsonrpc.CodeParse {
			t.Errorf("refused with %d %q", got.Code, got)
		}
	})
}

// Parse finds duplicates among few and among many names, at every position.
func TestParseDuplicatesAmongMany(t *testing.T) {
	for _, n := range []int{1, 2, 3, 63, 64, 65, 66, 1000} {
		for _, name := range []string{"%d", "argument_%d", "%d_suffix", "prefix_%d_suffix", `\u0061%d`} {
			var members []string
			for i := range n {
				members = append(members, fmt.Sprintf(`"`+name+`":%d`, i, i))
			}
			object := "{" + strings.Join(members, ",") + "}"
			mustParse(t, string(callWith(object)))
			for _, again := range []int{0, n / 2, n - 1} {
				more := strings.TrimSuffix(object, "}") + "," + strings.ReplaceAll(members[again], `\u0061`, "a") + "}"
				if got := refused(t, string(callWith(more)), jsonrpc.Limits{}); got.Error() != "duplicate member name" {
					t.Errorf("%d names like %s, name %d again: %v", n, name, again, got)
				}
			}
		}
	}
}
