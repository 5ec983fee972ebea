package jsonrpc_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// readEvents returns the events of a stream and the error that ends it.
func readEvents(r io.Reader, maxSize int) ([]jsonrpc.Event, error) {
	var events []jsonrpc.Event
	reader := jsonrpc.NewEventReader(r, maxSize)
	for {
		e, err := reader.Next()
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

func TestEventReader(t *testing.T) {
	type events = []jsonrpc.Event
	data := func(text string) []byte { return []byte(text) }
	tests := []struct {
		name, in string // with LF for every line break
		want     events
		wantErr  error
	}{
		{"nothing", "", nil, io.EOF},
		{"only blank lines", "\n\n\n", nil, io.EOF},
		{"one event", "data: x\n\n", events{{Data: data("x")}}, io.EOF},
		{"all fields", "event: message\nid: 7\nretry: 1500\ndata: x\n\n", events{
			{Name: "message", ID: "7", HasID: true, Retry: 1500 * time.Millisecond, Data: data("x")},
		}, io.EOF},
		{"two events", "data: a\n\ndata: b\n\n", events{{Data: data("a")}, {Data: data("b")}}, io.EOF},
		{"several lines of data", "data: a\ndata:\ndata: b\n\n", events{{Data: data("a\n\nb")}}, io.EOF},
		{"no space after the colon", "data:x\nid:1\n\n", events{{Data: data("x"), ID: "1", HasID: true}}, io.EOF},
		{"only one space is cut", "data:  x \n\n", events{{Data: data(" x ")}}, io.EOF},
		{"colons in the value", "data: a:b: c\n\n", events{{Data: data("a:b: c")}}, io.EOF},
		{"field without colon", "data\n\n", events{{Data: data("")}}, io.EOF},
		{"empty data", "data:\n\n", events{{Data: data("")}}, io.EOF},
		{"priming event", "id: s1\ndata:\n\n", events{{ID: "s1", HasID: true, Data: data("")}}, io.EOF},
		{"event without data", "event: x\n\n", events{{Name: "x"}}, io.EOF},
		{"id alone", "id: 1\n\n", events{{ID: "1", HasID: true}}, io.EOF},
		{"empty id", "id\ndata: x\n\n", events{{HasID: true, Data: data("x")}}, io.EOF},
		{"id with NUL is ignored", "id: a\x00b\ndata: x\n\n", events{{Data: data("x")}}, io.EOF},
		{"id with NUL alone", "id: a\x00b\n\n", nil, io.EOF},
		{"invalid retry", "retry: 1s\ndata: x\n\n", events{{Data: data("x")}}, io.EOF},
		{"retry with a sign", "retry: -1\ndata: x\n\n", events{{Data: data("x")}}, io.EOF},
		{"retry at once", "retry: 0\ndata: x\n\n", events{{Data: data("x")}}, io.EOF},
		{"retry without number", "retry\n\ndata: x\n\n", events{{Data: data("x")}}, io.EOF},
		{"last of several", "id: 1\nid: 2\nevent: a\nevent: b\n\n", events{{ID: "2", HasID: true, Name: "b"}}, io.EOF},
		{"comments", ": hello\n\n:\ndata: a\n: inside\ndata: b\n\n: bye\n", events{{Data: data("a\nb")}}, io.EOF},
		{"unknown fields", "foo: x\nbar\n\nDATA: x\n data: x\ndata: y\n\n", events{{Data: data("y")}}, io.EOF},
		{"byte order mark", "\ufeffdata: x\n\n", events{{Data: data("x")}}, io.EOF},
		{"byte order mark and comment", "\ufeff: x\n\ndata: x\n\n", events{{Data: data("x")}}, io.EOF},
		{"byte order mark alone", "\ufeff", nil, io.EOF},
		{"byte order mark later", "\n\ufeffdata: x\n\n", nil, io.EOF},
		{"two byte order marks", "\ufeff\ufeffdata: x\n\n", nil, io.EOF},
		{"unfinished event", "data: a\n\ndata: b\n", events{{Data: data("a")}}, io.ErrUnexpectedEOF},
		{"unfinished line", "data: a\n\ndata: b", events{{Data: data("a")}}, io.ErrUnexpectedEOF},
		{"unfinished comment", "data: a\n\n: x", events{{Data: data("a")}}, io.ErrUnexpectedEOF},
		{"bytes that are no UTF-8", "data: \xff\xfe\n\n", events{{Data: data("\xff\xfe")}}, io.EOF},
	}
	endings := map[string]*strings.Replacer{
		"LF": strings.NewReplacer(), "CR": strings.NewReplacer("\n", "\r"), "CRLF": strings.NewReplacer("\n", "\r\n"),
	}
	for _, tt := range tests {
		for ending, replacer := range endings {
			t.Run(tt.name+"/"+ending, func(t *testing.T) {
				in := replacer.Replace(tt.in)
				for reads, r := range map[string]io.Reader{
					"whole":        strings.NewReader(in),
					"single bytes": iotest.OneByteReader(strings.NewReader(in)),
					"with EOF":     iotest.DataErrReader(strings.NewReader(in)),
				} {
					got, err := readEvents(r, 1<<10)
					if diff := cmp.Diff(tt.want, got); diff != "" {
						t.Errorf("%s: events (-want +got):\n%s", reads, diff)
					}
					if !errors.Is(err, tt.wantErr) {
						t.Errorf("%s: error %v, want %v", reads, err, tt.wantErr)
					}
				}
			})
		}
	}
}

func TestEventReaderMixedEndings(t *testing.T) {
	const in = "data: a\rdata: b\r\ndata: c\n\rdata: d\n\r\ndata: e\r\r\ndata: f\n\n\n\r\r\ndata: g\r\n\r"
	want := []string{"a\nb\nc", "d", "e", "f", "g"}
	events, err := readEvents(strings.NewReader(in), 100)
	var got []string
	for _, e := range events {
		got = append(got, string(e.Data))
	}
	if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, io.EOF) {
		t.Errorf("data (-want +got):\n%s, error %v", diff, err)
	}
}

func TestEventReaderLimit(t *testing.T) {
	tests := []struct {
		name, in string
		want     int // events before the error
		wantErr  error
	}{
		{"at the limit", "data: 0123\n\n", 1, io.EOF},
		{"over the limit", "data: 01234\n\n", 0, jsonrpc.ErrTooLarge},
		{"over the limit without an end", "data: 0123456789", 0, jsonrpc.ErrTooLarge},
		{"several fields at the limit", "id:1\ndata:\n\n", 1, io.EOF},
		{"several fields over the limit", "id: 1\ndata:\n\n", 0, jsonrpc.ErrTooLarge},
		{"the limit is for each event", strings.Repeat("data: 0123\n\n", 20), 20, io.EOF},
		{"comments between events do not count", strings.Repeat(": ping\n", 20) + "data: 0123\n\n" + strings.Repeat(": ping\n\n", 20), 1, io.EOF},
		{"long comment", ": 0123456789\n\ndata: x\n\n", 0, jsonrpc.ErrTooLarge},
		{"nothing after a large event", "data: 0\n\ndata: 0123456789\ndata: 1\n\ndata: 2\n\n", 1, jsonrpc.ErrTooLarge},
		{"larger than any buffer", "data: " + strings.Repeat("x", 1<<20) + "\n\n", 0, jsonrpc.ErrTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := jsonrpc.NewEventReader(strings.NewReader(tt.in), 12)
			for i := range tt.want {
				if _, err := r.Next(); err != nil {
					t.Fatalf("event %d: %v", i, err)
				}
			}
			for range 3 {
				if e, err := r.Next(); !errors.Is(err, tt.wantErr) {
					t.Errorf("then %v, %v, want %v", e, err, tt.wantErr)
				}
			}
		})
	}
	large := strings.Repeat("x", 1<<20)
	events, _ := readEvents(strings.NewReader("data: "+large+"\r\n\r\n"), 2<<20)
	if len(events) != 1 || string(events[0].Data) != large {
		t.Error("a large event within the limit did not arrive")
	}
}

// An EventReader that failed does not return later bytes as an event.
func TestEventReaderFailedRead(t *testing.T) {
	in := "data: a\n\ndata: b\ndata: c\n\n"
	r := jsonrpc.NewEventReader(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(in))), 100)
	for range 3 {
		if e, err := r.Next(); !errors.Is(err, iotest.ErrTimeout) {
			t.Errorf("Next = %v, %v, want the read's error", e, err)
		}
	}
}

// The reader returns an event as soon as it has the last byte, with any line ending.
func TestEventReaderDoesNotWait(t *testing.T) {
	for _, in := range []string{"id\n\n", "data: x\r\r", "data: x\r\n\r", "\ufeffid\r\r"} {
		synctest.Test(t, func(t *testing.T) {
			pr, pw := io.Pipe()
			go func() { _, _ = pw.Write([]byte(in)) }() // and never closes: Next would deadlock
			if _, err := jsonrpc.NewEventReader(pr, 100).Next(); err != nil {
				t.Errorf("%q: %v", in, err)
			}
			_ = pr.Close()
		})
	}
}

func TestAppendEvent(t *testing.T) {
	tests := []struct {
		name string
		e    jsonrpc.Event
		want string
	}{
		{"data", jsonrpc.Event{Data: []byte(`{}`)}, "data: {}\n\n"},
		{
			"all",
			jsonrpc.Event{Name: "message", ID: "1", HasID: true, Retry: time.Second, Data: []byte("x")},
			"event: message\nid: 1\nretry: 1000\ndata: x\n\n",
		},
		{"priming event", jsonrpc.Event{ID: "1", HasID: true, Data: []byte{}}, "id: 1\ndata: \n\n"},
		{"empty id", jsonrpc.Event{HasID: true}, "id: \n\n"},
		{"id that is not set", jsonrpc.Event{ID: "1", Data: []byte("x")}, "data: x\n\n"},
		{"lines", jsonrpc.Event{Data: []byte("a\nb\r\nc\rd\n")}, "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"},
		{"name and id that try to be more", jsonrpc.Event{Name: "a\n\ndata: x", ID: "1\r2\x003", HasID: true}, "event: adata: x\nid: 123\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff("before"+tt.want, string(jsonrpc.AppendEvent([]byte("before"), tt.e))); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAppendComment(t *testing.T) {
	got := string(jsonrpc.AppendComment([]byte("before\n"), "keep\nalive\r\ndata: x"))
	if want := "before\n: keepalivedata: x\n\n"; got != want {
		t.Errorf("comment is %q, want %q", got, want)
	}
}

// drawEvent generates an event that AppendEvent can write.
func drawEvent(t *rapid.T) jsonrpc.Event {
	word := rapid.StringMatching(`[^\r\n\x00]{0,8}`)
	e := jsonrpc.Event{
		Name:  word.Draw(t, "name"),
		HasID: rapid.Bool().Draw(t, "has id"),
		Retry: time.Duration(rapid.IntRange(0, 1<<31-1).Draw(t, "retry")) * time.Millisecond,
	}
	if e.HasID {
		e.ID = word.Draw(t, "id")
	}
	if rapid.Bool().Draw(t, "has data") {
		e.Data = []byte(rapid.StringMatching(`([^\r\n]{0,9}|\n|\r|\r\n){0,5}`).Draw(t, "data"))
	}
	return e
}

func TestEventRoundTrip(t *testing.T) {
	breaks := strings.NewReplacer("\r\n", "\n", "\r", "\n")
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want []jsonrpc.Event
		for range rapid.IntRange(0, 4).Draw(t, "events") {
			e := drawEvent(t)
			stream = jsonrpc.AppendEvent(stream, e)
			if rapid.Bool().Draw(t, "comment") {
				stream = jsonrpc.AppendComment(stream, "ping")
			}
			if e.Data != nil {
				e.Data = []byte(breaks.Replace(string(e.Data)))
			}
			if diff := cmp.Diff(jsonrpc.Event{}, e); diff != "" {
				want = append(want, e)
			}
		}
		got, err := readEvents(bytes.NewReader(stream), 1<<20)
		if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, io.EOF) {
			t.Errorf("%q: events (-want +got):\n%s, error %v", stream, diff, err)
		}
	})
}
