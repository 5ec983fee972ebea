package jsonrpc_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// readData returns the event data of a stream, and whether the last event was incomplete.
func readData(r io.Reader) (all []string, broken bool) {
	reader := jsonrpc.NewDataReader(r)
	for {
		if err := reader.Next(); err != nil {
			return all, errors.Is(err, io.ErrUnexpectedEOF)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			return all, errors.Is(err, io.ErrUnexpectedEOF)
		}
		all = append(all, string(data))
	}
}

// checkData compares the data with that of an EventReader.
func checkData(t failer, stream string) {
	t.Helper()
	events, err := readEvents(strings.NewReader(stream), 1<<20)
	var want []string
	for _, e := range events {
		if e.Data != nil {
			want = append(want, string(e.Data))
		}
	}
	for _, r := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
		got, broken := readData(r)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", stream, diff)
		}
		if broken && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: breaks off", stream)
		}
	}
}

func TestDataReader(t *testing.T) {
	lines := []string{"data: x", "data:  y:z", "data", ": comment", "datax: 2", "", "\ufeffdata:"}
	var build func(prefix string, left int)
	build = func(prefix string, left int) {
		checkData(t, prefix)
		if left == 0 {
			return
		}
		for _, line := range lines {
			for _, end := range []string{"\n", "\r", "\r\n"} {
				build(prefix+line+end, left-1)
			}
		}
	}
	build("", 3)
	for _, end := range []string{"data: x\ndata", "data: x\r", "da", ":", "\ufeff", "data: x\n\nid: 7"} {
		checkData(t, end)
	}
}

// A large event arrives in pieces, with its lines joined.
func TestDataReaderHuge(t *testing.T) {
	line := strings.Repeat("é", 100<<10)
	got, broken := readData(strings.NewReader("id: 7\r\ndata: " + line + "\r\nretry: 5\r\ndata:" + line + "\r\n\r\ndata: z\n\n"))
	if diff := cmp.Diff([]string{line + "\n" + line, "z"}, got); diff != "" || broken {
		t.Errorf("broken %v, (-want +got):\n%s", broken, diff)
	}
	if got, broken := readData(strings.NewReader("data: " + line + "\n")); len(got) > 0 || !broken {
		t.Errorf("%d events; broken %v", len(got), broken)
	}
}

// The reader skips the unread rest of an event.
func TestDataReaderSkips(t *testing.T) {
	r := jsonrpc.NewDataReader(strings.NewReader("data: abc\ndata: def\n\ndata: ghi\n\n"))
	var first [1]byte
	if err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(first[:]); err != nil || first[0] != 'a' {
		t.Fatalf("read %q, %v", first, err)
	}
	if err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "ghi" {
		t.Errorf("the next event is %q, %v", rest, err)
	}
	if err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last event: %v", err)
	}
}

func FuzzData(f *testing.F) {
	for _, seed := range streamSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) { checkData(t, string(stream)) })
}

func TestDataWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(rapid.StringOf(rapid.SampledFrom([]rune("ab\r\n é"))), 1, 6).Draw(t, "pieces")
		data := strings.Join(pieces, "")
		var got bytes.Buffer
		w := jsonrpc.NewDataWriter(&got)
		for _, piece := range pieces {
			if n, err := io.WriteString(w, piece); err != nil || n != len(piece) {
				t.Fatalf("%d bytes of %q were written, %v", n, piece, err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		want := jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: []byte(data)})
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", data, diff)
		}
	})
}
