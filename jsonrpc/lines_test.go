package jsonrpc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// readLines returns the lines of a LineReader until an error. For a line that is too large it
// returns the text of ErrTooLarge.
func readLines(r io.Reader, maxSize int) ([]string, error) {
	var lines []string
	reader := jsonrpc.NewLineReader(r, maxSize)
	for {
		line, err := reader.Next()
		switch {
		case errors.Is(err, jsonrpc.ErrTooLarge):
			lines = append(lines, "too large")
		case err != nil:
			return lines, err
		default:
			lines = append(lines, string(line))
		}
	}
}

func TestLineReader(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"one line", "{}\n", []string{"{}"}},
		{"no newline at the end", "{}\n[]", []string{"{}", "[]"}},
		{"CRLF", "{}\r\n[]\r\n", []string{"{}", "[]"}},
		{"blank lines", "\n\r\n \t\r\n{}\n\n", []string{"{}"}},
		{"CR does not end a line", "{\r}\n", []string{"{\r}"}},
		{"white space in the line stays", " {} \n", []string{" {} "}},
		{"bytes that are no white space of JSON", "\u00a0\n\f\n", []string{"\u00a0", "\f"}},
		{"at the limit", "01234567\n{}\n", []string{"01234567", "{}"}},
		{"over the limit", "012345678\n{}\n", []string{"too large", "{}"}},
		{"at the limit at the end", "{}\n01234567", []string{"{}", "01234567"}},
		{"over the limit at the end", "{}\n012345678", []string{"{}", "too large"}},
		{"two over the limit", "0123456789\n0123456789\n{}", []string{"too large", "too large", "{}"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for reads, r := range map[string]io.Reader{
				"whole":        strings.NewReader(tt.in),
				"single bytes": iotest.OneByteReader(strings.NewReader(tt.in)),
				"with EOF":     iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				got, err := readLines(r, 8)
				if diff := cmp.Diff(tt.want, got); diff != "" || !errors.Is(err, io.EOF) {
					t.Errorf("%s: lines (-want +got):\n%s, error %v", reads, diff, err)
				}
			}
		})
	}
}

// Lines and limits around the size of the reader's buffer.
func TestLineReaderLongLines(t *testing.T) {
	for _, size := range []int{4094, 4095, 4096, 4097, 8191, 8192, 8193, 100_000} {
		for _, limit := range []int{size - 1, size, size + 1} {
			for _, end := range []string{"\n", ""} {
				t.Run(fmt.Sprintf("%d of %d%q", size, limit, end), func(t *testing.T) {
					long := strings.Repeat("x", size)
					want := []string{"{}", long}
					if size > limit {
						want[1] = "too large"
					}
					in := "{}\n" + long + end
					if end != "" {
						in, want = in+"[]\n", append(want, "[]")
					}
					got, err := readLines(strings.NewReader(in), limit)
					if !cmp.Equal(want, got) || !errors.Is(err, io.EOF) {
						t.Errorf("%.80q, %v, want %.80q", got, err, want)
					}
				})
			}
		}
	}
}

func TestLineReaderOwnBytes(t *testing.T) {
	r := jsonrpc.NewLineReader(strings.NewReader("first\nsecond\n"), 10)
	first, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err != nil || string(first) != "first" {
		t.Errorf("after the second line the first is %q, %v", first, err)
	}
}

// A LineReader that failed does not return later bytes as a line.
func TestLineReaderFailedRead(t *testing.T) {
	for _, limit := range []int{100, 3} {
		in := iotest.TimeoutReader(iotest.HalfReader(strings.NewReader(strings.Repeat("x", 50_000) + "{}\n[]\n")))
		r := jsonrpc.NewLineReader(in, limit)
		for range 3 {
			if line, err := r.Next(); !errors.Is(err, iotest.ErrTimeout) {
				t.Errorf("Next = %q, %v, want the read's error", line, err)
			}
		}
	}
}

func TestAppendLine(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"a":1}`, "{\"a\":1}\n"},
		{"{\n\t\"a\": \"x\\n\"\r\n}\n", "{ \t\"a\": \"x\\n\"  } \n"},
		{"", "\n"},
	}
	for _, tt := range tests {
		before := []byte("{\n}\n")
		if got := string(jsonrpc.AppendLine(before, []byte(tt.in))); got != "{\n}\n"+tt.want {
			t.Errorf("AppendLine of %q = %q, want %q after the existing bytes", tt.in, got, tt.want)
		}
	}
}

func TestLineRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want []string
		for range rapid.IntRange(0, 4).Draw(t, "messages") {
			message := string(callWith(drawJSON(t, 3)))
			stream = jsonrpc.AppendLine(stream, []byte(message))
			want = append(want, strings.NewReplacer("\n", " ", "\r", " ").Replace(message))
		}
		got, err := readLines(bytes.NewReader(stream), 1<<20)
		if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, io.EOF) {
			t.Errorf("lines (-want +got):\n%s, error %v", diff, err)
		}
		for _, line := range got {
			if _, err := jsonrpc.Parse([]byte(line), jsonrpc.Limits{}); err != nil {
				t.Errorf("%q: %v", line, err)
			}
		}
	})
}

// A line that is too large goes to the given writer completely, and the reader keeps nothing of it.
func TestLineReaderPassesLargeLines(t *testing.T) {
	large := strings.Repeat("0123456789", 20_000)
	reader := jsonrpc.NewLineReader(strings.NewReader("{}\n"+large+"\n[]\n"), 100_000)
	var seen strings.Builder
	reader.OnLarge(func(piece []byte) { seen.Write(piece) })
	var got []string
	for range 3 {
		line, err := reader.Next()
		if err != nil && !errors.Is(err, jsonrpc.ErrTooLarge) {
			t.Fatal(err)
		}
		got = append(got, string(line))
	}
	if diff := cmp.Diff([]string{"{}", "", "[]"}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if strings.TrimSpace(seen.String()) != large {
		t.Errorf("%d bytes of the large line were seen; want %d", seen.Len(), len(large))
	}
}
