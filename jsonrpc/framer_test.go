package jsonrpc_test

import (
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// openAfter reports whether the stream is inside an event or line after the given bytes. It
// reads from the start.
func openAfter(stream string) bool {
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream), "\n")
	if lines[len(lines)-1] != "" {
		return true
	}
	lines[0] = strings.TrimPrefix(lines[0], "\ufeff")
	open := false
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			open = false
		} else if !strings.HasPrefix(line, ":") {
			open = true
		}
	}
	return open
}

// boundariesIn returns the ends of events in chunk, which follows the bytes before. A boundary
// may be inside CRLF only at the end of the chunk.
func boundariesIn(before, chunk string) []int {
	var all []int
	for n := 1; n <= len(chunk); n++ {
		breaks := chunk[n-1] == '\n' || chunk[n-1] == '\r'
		inside := chunk[n-1] == '\r' && strings.HasPrefix(chunk[n:], "\n")
		if breaks && !inside && !openAfter(before+chunk[:n]) {
			all = append(all, n)
		}
	}
	return all
}

func boundariesByNext(f *jsonrpc.Framer, chunk string) []int {
	var all []int
	for at := 0; at < len(chunk); {
		n, complete := f.Next([]byte(chunk[at:]))
		if at += n; complete {
			all = append(all, at)
		} else if at < len(chunk) {
			return append(all, -1) // must consume the rest
		}
	}
	return all
}

func lastOf(boundaries []int) int {
	if len(boundaries) == 0 {
		return 0
	}
	return boundaries[len(boundaries)-1]
}

// hasIDs reports whether an event has an ID.
func hasIDs(events []jsonrpc.Event) bool {
	for _, e := range events {
		if e.ID != "" {
			return true
		}
	}
	return false
}

// isPlain is a slow implementation of [jsonrpc.Framer.Plain].
func isPlain(event string) bool {
	data := 0
	for event != "" {
		line, rest, ended := strings.Cut(event, "\n")
		line, event = strings.TrimSuffix(line, "\r"), rest
		if !ended || strings.Contains(line, "\r") {
			return false
		}
		if strings.HasPrefix(line, "data:") {
			data++
		} else if !otherLine.MatchString(line) {
			return false
		}
	}
	return data <= 1
}

var otherLine = regexp.MustCompile(`^((event|id|retry)?:[ -~]*)?$`)

// checkPlain compares a Framer with isPlain.
func checkPlain(t failer, chunks []string) {
	t.Helper()
	var f jsonrpc.Framer
	event := ""
	for _, chunk := range chunks {
		for chunk != "" {
			n, complete := f.Next([]byte(chunk))
			event, chunk = event+chunk[:n], chunk[n:]
			if !complete {
				continue
			}
			if want := isPlain(event); f.Plain() != want {
				t.Errorf("%q in %q: Plain() = %t", event, chunks, f.Plain())
			}
			event = ""
		}
	}
}

type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

// checkFramer compares a Framer with the slow implementation. It inserts an event at each
// boundary, which must not change the other events.
func checkFramer(t failer, chunks []string) {
	t.Helper()
	checkPlain(t, chunks)
	var f jsonrpc.Framer
	stream := strings.Join(chunks, "")
	mine := jsonrpc.Event{Name: "mine", Data: []byte("inserted")}
	at := 0
	var stepping jsonrpc.Framer
	for _, chunk := range chunks {
		if diff := cmp.Diff(boundariesIn(stream[:at], chunk), boundariesByNext(&stepping, chunk)); diff != "" {
			t.Errorf("%q, then %q: boundaries (-want +got):\n%s", stream[:at], chunk, diff)
		}
		got := f.Advance([]byte(chunk))
		if want := lastOf(boundariesIn(stream[:at], chunk)); got != want {
			t.Errorf("%q, then %q: boundary %d, want %d", stream[:at], chunk, got, want)
			return
		}
		at += len(chunk)
		if f.Open() != openAfter(stream[:at]) {
			t.Errorf("%q: Open() = %t", stream[:at], f.Open())
		}
		// The Framer accepts an ID with NUL, which the EventReader ignores.
		if events, _ := readEvents(strings.NewReader(stream[:at]), 1<<20); f.HasIDs() != hasIDs(events) && !strings.Contains(stream, "\x00") {
			t.Errorf("%q: HasIDs() = %t", stream[:at], f.HasIDs())
		}
		if got > 0 {
			cut := at - len(chunk) + got
			checkInserted(t, stream[:cut], mine, stream[cut:])
		}
	}
}

func checkInserted(t failer, before string, mine jsonrpc.Event, after string) {
	t.Helper()
	want, wantErr := readEvents(strings.NewReader(before+after), 1<<20)
	first, err := readEvents(strings.NewReader(before), 1<<20)
	if !errors.Is(err, io.EOF) {
		t.Errorf("%q: a boundary, but the stream cut there ends with %v", before, err)
	}
	want = append(append(want[:len(first):len(first)], mine), want[len(first):]...)
	got, err := readEvents(strings.NewReader(before+string(jsonrpc.AppendEvent(nil, mine))+after), 1<<20)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q, insertion, %q: events (-want +got):\n%s", before, after, diff)
	}
	if !errors.Is(err, wantErr) {
		t.Errorf("%q, insertion, %q: %v, want %v", before, after, err, wantErr)
	}
}

// drawStream generates a stream from the relevant pieces.
func drawStream(t *rapid.T) string {
	pieces := rapid.SliceOfN(rapid.SampledFrom([]string{
		"\n", "\r", "\r\n", "\n\n", "\r\r", "\r\n\r\n", ":", ": ping", "data: x", "data:", "data", "event: e", "retry: 1", "event: \u2028", "data: \u2028",
		"id: 7", "id:", "id", "id: ", "id:  ", "idx: 7", " id: 7", "i", "d", "\ufeff", "\xef\xbb", "foo", " ",
	}), 0, 20).Draw(t, "pieces")
	mark := rapid.SampledFrom([]string{"", "", "\ufeff"}).Draw(t, "mark")
	return mark + strings.Join(pieces, "")
}

func drawChunks(t *rapid.T, stream string) []string {
	var chunks []string
	for stream != "" {
		n := rapid.IntRange(1, len(stream)).Draw(t, "chunk")
		chunks, stream = append(chunks, stream[:n]), stream[n:]
	}
	return chunks
}

func TestFramerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkFramer(t, drawChunks(t, drawStream(t)))
	})
}

func TestFramer(t *testing.T) {
	tests := []struct {
		name, in string
		want     int
		open     bool
		hasIDs   bool
	}{
		{"nothing", "", 0, false, false},
		{"one event", "data: x\n\n", 9, false, false},
		{"event and the start of another", "data: x\n\ndata", 9, true, false},
		{"open event", "data: x\n", 0, true, false},
		{"comment between events", "data: x\n\n: ping\n", 16, false, false},
		{"comment in an event", "data: x\n: ping\n", 0, true, false},
		{"comment at the start", ": ping\n", 7, false, false},
		{"unfinished comment", ": ping\n: pi", 7, true, false},
		{"blank lines", "\n\r\n\r", 4, false, false},
		{"CR only", "data: x\r\r", 9, false, false},
		{"CR, then LF", ": a\r: b\n", 8, false, false},
		{"CRLF", "data: x\r\n\r\n", 11, false, false},
		{"id", "id: 1\ndata: x\n\n", 15, false, true},
		{"id of an event that is not complete", "id: 1\ndata: x\n", 0, true, false},
		{"id without space", "id:1\n\n", 6, false, true},
		{"empty id", "id: \n\nid:\n\nid\n\n", 15, false, false},
		{"id that is taken back", "id: 1\nid:\n\n", 11, false, false},
		{"id in data", "data: id: 1\n\n", 13, false, false},
		{"other field with id in its name", "idx: 1\nsid: 1\n\n", 15, false, false},
		{"id after a byte order mark", "\ufeffid: 1\n\n", 10, false, true},
		{"comment after a byte order mark", "\ufeff: x\n", 7, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f jsonrpc.Framer
			got := f.Advance([]byte(tt.in))
			if got != tt.want || f.Open() != tt.open || f.HasIDs() != tt.hasIDs {
				t.Errorf("boundary %d, open %t, ids %t, want %d, %t, %t", got, f.Open(), f.HasIDs(), tt.want, tt.open, tt.hasIDs)
			}
			checkFramer(t, strings.Split(tt.in, ""))
		})
	}
}

func TestFramerLargeEvent(t *testing.T) {
	var f jsonrpc.Framer
	chunk := []byte(strings.Repeat("x", 64<<10))
	f.Advance([]byte("data: "))
	allocs := testing.AllocsPerRun(100, func() {
		if n := f.Advance(chunk); n != 0 {
			t.Errorf("boundary %d inside an event", n)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for a chunk", allocs)
	}
	if n := f.Advance([]byte("\n\n")); n != 2 || f.Open() {
		t.Errorf("boundary %d at the end, open %t", n, f.Open())
	}
}

func TestFramerPlain(t *testing.T) {
	tests := []struct {
		name, in string
		want     bool
	}{
		{"one line of data", "data: x\n\n", true},
		{"CRLF", "event: e\r\ndata: x\r\n\r\n", true},
		{"all fields", "event: e\n: c\nid: 1\nretry: 1\ndata: \u2028\n\n", true},
		{"no data", "id: 1\n\n", true},
		{"comment", ": ping\n", true},
		{"two lines of data", "data: x\ndata: y\n\n", false},
		{"CR in data", "data: x\ry\n\n", false},
		{"data behind a lone CR", "event: e\rdata: x\n\n", false},
		{"lone CR at the end", "data: x\n\r", false},
		{"field that some clients do not know", "foo: x\ndata: y\n\n", false},
		{"data without a colon", "data\n\n", false},
		{"another line break in a name", "event: e\u0085\ndata: x\n\n", false},
		{"another line break in a comment", ": \vdata: x\n", false},
		{"byte order mark", "\ufeffdata: x\n\n", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f jsonrpc.Framer
			if n, complete := f.Next([]byte(tt.in)); n != len(tt.in) || !complete {
				t.Fatalf("the event ends after %d bytes of %d", n, len(tt.in))
			}
			if f.Plain() != tt.want {
				t.Errorf("Plain() = %t", f.Plain())
			}
			checkFramer(t, strings.Split(tt.in, ""))
		})
	}
}

func TestPlainIsPerEvent(t *testing.T) {
	var f jsonrpc.Framer
	for _, event := range []string{"data: x\ndata: y\n\n", "data: x\r\r", "foo\n\n"} {
		f.Next([]byte(event))
		if f.Plain() {
			t.Errorf("%q: Plain() = true", event)
		}
		if f.Next([]byte("data: x\n\n")); !f.Plain() {
			t.Errorf("the event behind %q: Plain() = false", event)
		}
	}
}
