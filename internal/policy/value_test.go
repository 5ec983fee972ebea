package policy_test

import (
	"bytes"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// meaning returns a canonical text for the next JSON value of dec: a number is its value, an
// array is a set, and the order of members does not matter.
func meaning(t *testing.T, dec *jsontext.Decoder) string {
	token, err := dec.ReadToken()
	if err != nil {
		t.Fatalf("mapped, but not JSON: %v", err)
	}
	switch token.Kind() {
	case jsontext.KindString:
		return strconv.Quote(token.String())
	case jsontext.KindNumber:
		text := token.String()
		if mantissa, _, _ := strings.Cut(strings.ToLower(text), "e"); strings.Trim(mantissa, "-0.") == "" {
			return "0" // big refuses large exponents even of zero
		}
		n, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("not a number: %s", text)
		}
		return n.RatString()
	case jsontext.KindBeginObject:
		var members []string
		for dec.PeekKind() != jsontext.KindEndObject {
			name := meaning(t, dec)
			members = append(members, name+":"+meaning(t, dec))
		}
		return closed(t, dec, "{", members)
	case jsontext.KindBeginArray:
		var elements []string
		for dec.PeekKind() != jsontext.KindEndArray {
			elements = append(elements, meaning(t, dec))
		}
		return closed(t, dec, "[", elements)
	default:
		return token.String()
	}
}

func closed(t *testing.T, dec *jsontext.Decoder, open string, parts []string) string {
	if _, err := dec.ReadToken(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(parts)
	if open == "[" {
		parts = slices.Compact(parts)
	}
	return open + strings.Join(parts, ",")
}

// meaningOf returns the same text for a Cedar value.
func meaningOf(t *testing.T, v types.Value) string {
	switch v := v.(type) {
	case types.String:
		return strconv.Quote(string(v))
	case types.Boolean:
		return strconv.FormatBool(bool(v))
	case types.Long:
		return strconv.FormatInt(int64(v), 10)
	case types.Decimal:
		n, ok := new(big.Rat).SetString(v.String())
		if !ok {
			t.Fatalf("not a number: %s", v)
		}
		return n.RatString()
	case types.EntityUID:
		if v != types.NewEntityUID("ThoughtGate::Null", "null") {
			t.Fatalf("a value was mapped to an entity: %s", v)
		}
		return "null"
	case types.Record:
		var members []string
		for name, member := range v.All() {
			members = append(members, strconv.Quote(string(name))+":"+meaningOf(t, member))
		}
		slices.Sort(members)
		return "{" + strings.Join(members, ",")
	case types.Set:
		var elements []string
		for element := range v.All() {
			elements = append(elements, meaningOf(t, element))
		}
		slices.Sort(elements)
		return "[" + strings.Join(elements, ",")
	default:
		t.Fatalf("unexpected %T", v)
		return ""
	}
}

// wholeAreLongs reports a decimal that is a whole number, because it would not equal the long.
func wholeAreLongs(t *testing.T, v types.Value) {
	switch v := v.(type) {
	case types.Decimal:
		if strings.HasSuffix(v.String(), ".0") {
			t.Errorf("%s is a decimal", v)
		}
	case types.Record:
		for member := range v.Values() {
			wholeAreLongs(t, member)
		}
	case types.Set:
		for element := range v.All() {
			wholeAreLongs(t, element)
		}
	}
}

// Mapped arguments keep their meaning, so texts with different meanings are never mapped to
// the same value.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, ``, `[]`, `{"a":1}`, `{"a":-0,"b":1.50,"c":1e2,"d":[1,1.0,"x",null,true,[],{}]}`, `{"a":9223372036854775808}`, `{"a":-9223372036854775808}`,
		`{"a":922337203685477.5807}`, `{"a":0e999999999999999999999}`, `{"a":1e-999999999999999999999}`, `{"a":"é\ud83d\ude00"}`, `{"a":"\ud800"}`, `{"a":1,"a":2}`,
		`{"__entity":{"type":"A","id":"b"},"__extn":{"fn":"ip","arg":"1.2.3.4"}}`, `{"a":[[[[]]]]}`, `{"a":100000000000000000000e-4}`, `{"a":0.0001}`, `{"a":10e-5}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		defer func() {
			if !bytes.Equal(before, text) { // the forwarded text must be the judged one
				t.Errorf("%q became %q", before, text)
			}
		}()
		decimals, err := policy.MapDecimals(text)
		if err == nil && len(bytes.TrimSpace(text)) > 0 && !bytes.Equal(bytes.TrimSpace(text), []byte("null")) {
			if got, want := meaningOf(t, decimals), meaning(t, jsontext.NewDecoder(bytes.NewReader(text))); got != want {
				t.Errorf("%s is mapped to %s with decimals", text, got)
			}
		}
		record, err := policy.MapAll(text)
		if err != nil {
			return
		}
		want := "{"
		if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && string(trimmed) != "null" {
			want = meaning(t, jsontext.NewDecoder(bytes.NewReader(text)))
		}
		if got := meaningOf(t, record); got != want {
			t.Errorf("the meaning of %s is %s, and that of the mapped value %s", text, want, got)
		}
		wholeAreLongs(t, record)
	})
}

func TestNumbers(t *testing.T) {
	tests := []struct{ text, whole, decimal string }{ // empty: cannot be mapped
		{"0", "0", "0.0"},
		{"-0", "0", "0.0"},
		{"-0.0", "0", "0.0"},
		{"0e99999999999999999999", "0", "0.0"},
		{"1", "1", "1.0"},
		{"-1", "-1", "-1.0"},
		{"1.0", "1", "1.0"},
		{"1E2", "100", "100.0"},
		{"1e+2", "100", "100.0"},
		{"1200e-2", "12", "12.0"},
		{"0.12e2", "12", "12.0"},
		{"1.5", "1.5", "1.5"},
		{"-0.0001", "-0.0001", "-0.0001"},
		{"1.00010", "1.0001", "1.0001"},
		{"0.00001", "", ""},
		{"1e-4", "0.0001", "0.0001"},
		{"1e-5", "", ""},
		{"1.23456", "", ""},
		{"9007199254740992", "9007199254740992", ""},
		{"9007199254740993", "", ""}, // JavaScript reads the previous number
		{"-9007199254740993", "", ""},
		{"9007199254740994", "9007199254740994", ""},
		{"1152921504606846976", "1152921504606846976", ""},
		{"1152921504606847000", "", ""}, // the previous number as JavaScript writes it
		{"9223372036854775807", "", ""},
		{"-9223372036854775808", "-9223372036854775808", ""},
		{"9223372036854775808", "", ""},
		{"9223372036854775807.0", "", ""},
		{"123456789012.3456", "123456789012.3456", "123456789012.3456"},
		{"9e18", "9000000000000000000", ""},
		{"1e19", "", ""},
		{"1e400", "", ""},
		{"1e99999999999999999999", "", ""},
		{"1e-99999999999999999999", "", ""},
		{"922337203685477.5", "922337203685477.5", "922337203685477.5"},
		{"922337203685477.5807", "", ""},
		{"-922337203685477.5808", "", ""},
		{"922337203685477.5808", "", ""},
		{"922337203685478", "922337203685478", ""},
	}
	for _, tt := range tests {
		for name, f := range map[string]func([]byte) (types.Record, error){tt.whole: policy.MapAll, "decimal " + tt.decimal: policy.MapDecimals} {
			want := strings.TrimPrefix(name, "decimal ")
			record, err := f([]byte(`{"n":` + tt.text + `}`))
			if (err != nil) != (want == "") {
				t.Errorf("%s: %v, want %q", tt.text, err, want)
			}
			if v, _ := record.Get("n"); err == nil && v.String() != want {
				t.Errorf("%s: %s, want %s", tt.text, v, want)
			}
		}
	}
}

func TestArgumentLimits(t *testing.T) {
	numbers := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%d,", i)
		}
		return "[" + strings.TrimSuffix(b.String(), ",") + "]"
	}
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	tests := []struct{ arguments, want string }{
		{`{"a":` + deep(31) + `}`, ""},
		{`{"a":` + deep(32) + `}`, `"a": a value nested deeper than 32`},
		{`{"a":` + strings.Repeat(`{"b":`, 32) + "1" + strings.Repeat("}", 33), `"a": a value nested deeper than 32`},
		{`{"a":` + numbers(1000) + `}`, ""},
		{`{"a":` + numbers(1001) + `}`, `"a": an array of more than 1000 elements`},
		{`{"a":[` + strings.Repeat(numbers(998)+",", 9) + numbers(998) + `]}`, ""},
		{`{"a":[` + strings.Repeat(numbers(1000)+",", 9) + numbers(1000) + `]}`, `"a": more than 10000 values`},
		{`{"a":"` + "\xff" + `"}`, `"a": invalid JSON or a duplicate name`},
		{`{"a":"\ud800"}`, `"a": invalid JSON or a duplicate name`},
		{`{"a":1,"b":tru}`, `"b": invalid JSON or a duplicate name`},
		{`{"a":1,"\u0061":1}`, `"a": invalid JSON or a duplicate name`},
		{`{"a":1,}`, `"a": invalid JSON or a duplicate name`},
		{`"a"`, "no members: they are not a JSON object"},
		{`{} {}`, "text after their end"},
	}
	for _, tt := range tests {
		got := ""
		if _, err := policy.MapAll([]byte(tt.arguments)); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%.40s…: %q, want %q", tt.arguments, got, tt.want)
		}
	}
}

// The worst set within the limits is mapped quickly.
func TestCollidingArgumentsAreMappedQuickly(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"a":[0`)
	for i := 1; i < 500; i++ {
		fmt.Fprintf(&b, ",%d,%d.%04d", i, i/10000, i%10000) // equal hashes in cedar-go
	}
	b.WriteString(`]}`)
	record, err := policy.MapAll([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if set, _ := record.Get("a"); set.(types.Set).Len() != 999 {
		t.Errorf("the set has %d elements", set.(types.Set).Len())
	}
}
