package jsonrpc_test

import (
	stdjson "encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

const unclear = "unclear"

// scanInPieces returns the IDs found in text that arrives in pieces of the given size.
func scanInPieces(text string, size int, scan func([]byte) error, ids func() [][]byte) string {
	for piece := range slices.Chunk([]byte(text), size) {
		if scan(piece) != nil {
			return unclear
		}
	}
	var found []string
	for _, id := range ids() {
		found = append(found, string(id))
	}
	return strings.Join(found, " ")
}

func TestAnswerScanner(t *testing.T) {
	tests := []struct{ text, want string }{
		{`{"jsonrpc":"2.0","id":7,"result":{}}`, "7"},
		{` { "result" : { "id" : 9 , "error" : [ { } ] } , "id" : "a b" } `, `"a b"`},
		{`{"i\u0064":7.0,"r\u0065sult":"}\\"}`, "7.0"},
		{`{"id":6,"id":7,"result":{}}`, "6 7"},
		{`{"ID":7,"reſult":1}`, "7"},
		{`{"id":null,"error":{"code":1,"message":"\"id\":8"}}`, "null"},
		{`{"id":[7],"error":{}}`, "["},
		{`{"error":{}}`, ""},
		{`{"id":7,"method":"sampling/createMessage","params":{"result":1,"id":8}}`, ""},
		{`{"method":"n","params":["result",{"error":1}]}`, ""},
		{`[{"id":1,"result":[]},{"id":2,"method":"m"},{"id":3,"error":{}}]`, "1 3"},
		{`{"id":1,"result":1}` + "\n" + `{"id":2,"result":1}`, "1 2"},
		{`{"result":"` + strings.Repeat(`\\`, 40) + `","id":7}`, "7"},
		{`{"result":"\\\"","id":7}`, "7"},
		{`{"` + strings.Repeat("x", 100) + `":"y","id":7,"result":{}}`, unclear},
		{`{"jsonrpc":"2.0" "id":7,"result":{}}`, unclear},
		{`/**/{"id":7,"result":{}}`, unclear},
		{`)]}'{"id":7,"result":{}}`, unclear},
		{"<html>{\"id\":7,\"result\":{}}</html>", ""},
		{`{}`, ""},
		{`[]`, ""},
		{"", ""},
		{`{"__proto__":{"id":7,"result":{}}}`, unclear},
		{`{"id\u0000":7,"result":{}}`, unclear},
		{`{"id\u0000` + strings.Repeat("x", 100) + `":7,"result":{}}`, unclear},
		{`[[{"id":7,"result":{}}]]`, unclear},
		{`{'id':7,"result":{}}`, unclear},
		{`{id:7,"result":{}}`, unclear},
		{`{"result":{} /* } */,"id":7}`, unclear},
		{"\ufeff" + `{"id":7,"result":{}}`, unclear},
		{"{\x00\"\x00i\x00d\x00\"\x00:\x007\x00,\x00", unclear},
		{`{"id":"` + strings.Repeat("x", 70<<10) + `","result":{}}`, unclear},
		{`{"\x":7}`, unclear},
		{`{"id":7,"result":{}]`, unclear},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 2, 7, 1 << 20} {
			var s jsonrpc.AnswerScanner
			if got := scanInPieces(tt.text, size, s.Scan, s.IDs); got != tt.want {
				t.Errorf("%.80s in pieces of %d: %s; want %s", tt.text, size, got, tt.want)
			}
		}
	}
}

// Methods are reported before their messages end.
func TestAnswerScannerReportsMethods(t *testing.T) {
	tests := []struct{ text, want string }{
		{`{"method":"a/b","params":{"method":"x"}}`, "a/b"},
		{`{"params":{"method":"x"},"method":"a\/\u0062","id":1}`, "a/b"},
		{`{"METHOD":"a","method":"b"}`, "a b"},
		{`[{"method":"a"},{"id":1,"result":{"method":"x"}},{"method":"b"}]`, "a b"},
		{`{"method":null,"id":1,"result":"method"}`, ""},
		{`{"method":["a"]}`, unclear},
		{`{"method":7}`, unclear},
		{`{"method":{"method":"x"}}`, unclear},
		{`{"method":"` + strings.Repeat("x", 300) + `"}`, unclear},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 2, 7, 1 << 20} {
			var found []string
			s := jsonrpc.AnswerScanner{Method: func(m string) error { found = append(found, m); return nil }}
			got := scanInPieces(tt.text, size, s.Scan, s.IDs)
			if got != unclear {
				got = strings.Join(found, " ")
			}
			if got != tt.want {
				t.Errorf("%.80s in pieces of %d: %s; want %s", tt.text, size, got, tt.want)
			}
		}
	}
	refused := jsonrpc.AnswerScanner{Method: func(string) error { return jsonrpc.ErrTooLarge }}
	if got := scanInPieces(`{"method":"a"}`, 1, refused.Scan, refused.IDs); got != unclear {
		t.Errorf("a refused method: %s", got)
	}
}

func TestEventScanner(t *testing.T) {
	tests := []struct{ text, want string }{
		{"data: {\"id\":7,\"result\":{}}\n\n", "7"},
		{"id: x\r\n: {\r\nevent: {\"id\":8,\r\ndata:{\"id\":7,\r\ndata:\"result\":\r\ndata: {}}\r\nretry: 1\r\n\r\n", "7"},
		{"data:{\"id\":7,\nid: x\ndata:\"result\":{}}\n\n", unclear},
		{"data: {\"id\":7}\rdata:\r\r", unclear},
		{"data: {\"id\":7,\r\"result\":{}}\n\n", unclear},
		{" data: {\"id\":7,\"result\":{}}\n\n", unclear},
		{"DATA: {\"id\":7,\"result\":{}}\n\n", unclear},
		{"data\ndata: {\"id\":7,\"result\":{}}\n\n", unclear},
		{": x\u2028data: {\"id\":7,\"result\":{}}\n\n", unclear},
		{"id: x\x0bdata: {\"id\":7,\"result\":{}}\n\n", unclear},
		{"data: x\ndata: {\"id\":7,\"result\":{}}\n\n", unclear},
		{"\ufeffdata: {\"id\":7,\"result\":{}}\n\n", unclear},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 2, 7, 1 << 20} {
			var s jsonrpc.EventScanner
			if got := scanInPieces(tt.text, size, s.Scan, s.Answers.IDs); got != tt.want {
				t.Errorf("%q in pieces of %d: %s; want %s", tt.text, size, got, tt.want)
			}
		}
	}
}

// FuzzAnswerScanner checks that the scanner finds every response ID that a lenient decoder
// finds.
func FuzzAnswerScanner(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":7,"result":{}}`, `{"result":{"a":"\\\""},"Id":"x","id":7}`,
		`{"ERROR":{},"i\u0064":-7.0e1}`, "\t{\"id\":{\"a\":1},\"result\":[[{}]]}\n", `{"id":1,"method":"m"}`,
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		var lenient struct {
			ID            stdjson.RawMessage
			Result, Error any
		}
		if stdjson.Unmarshal(text, &lenient) != nil {
			return
		}
		var s jsonrpc.AnswerScanner
		got := scanInPieces(string(text), int(size)+1, s.Scan, s.IDs)
		var whole jsonrpc.AnswerScanner
		if again := scanInPieces(string(text), max(1, len(text)), whole.Scan, whole.IDs); again != got {
			t.Fatalf("in pieces %s; as a whole %s", got, again)
		}
		if got == unclear || lenient.ID == nil || lenient.Result == nil && lenient.Error == nil {
			return
		}
		want := string(lenient.ID)
		if want[0] == '{' || want[0] == '[' {
			want = want[:1]
		}
		if !slices.ContainsFunc(s.IDs(), func(id []byte) bool { return string(id) == want }) {
			t.Errorf("%s: found %s; want %s among them", text, got, want)
		}
	})
}
