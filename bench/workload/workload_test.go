package workload_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/bench/workload"
)

var kinds = []workload.Kind{workload.JSON, workload.SSE, workload.Modern, workload.BigJSON, workload.BigSSE}

// For every kind, the request and the answer are valid messages of this kind.
func TestExchange(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			e := workload.New(k, "127.0.0.1:1", 2)
			e.Renumber(123)
			_, body, _ := bytes.Cut(e.Request, []byte("\r\n\r\n"))
			if !jsontext.Value(body).IsValid() || len(body) != 1<<10 {
				t.Errorf("the body of the request is not 1 KiB of JSON: %d bytes\n%s", len(body), body)
			}
			if !bytes.Contains(body, []byte(`"id":1000000123,`)) {
				t.Errorf("the request has a wrong id:\n%s", body)
			}
			var answer strings.Builder
			if n, err := e.Answer.WriteTo(&answer); err != nil || n != e.Answer.Len() || n != int64(answer.Len()) {
				t.Fatalf("wrote %d, %v; want all %d", n, err, e.Answer.Len())
			}
			messages := split(t, e.Type, answer.String())
			for _, m := range messages {
				if !jsontext.Value(m).IsValid() {
					t.Errorf("not JSON: %.200s", m)
				}
			}
			if last := messages[len(messages)-1]; !strings.Contains(last, `"id":1000000123,`) {
				t.Errorf("the answer has a wrong id: %.200s", last)
			}
		})
	}
}

// split returns the messages of a body.
func split(t *testing.T, contentType, body string) []string {
	t.Helper()
	if contentType == workload.TypeJSON {
		return []string{body}
	}
	events := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
	for i, e := range events {
		var ok bool
		if events[i], ok = strings.CutPrefix(e, "event: message\ndata: "); !ok {
			t.Fatalf("event %.100q", e)
		}
	}
	return events
}

func TestSmallAnswersHaveAKibibyte(t *testing.T) {
	for _, k := range []workload.Kind{workload.JSON, workload.Modern} {
		if got := workload.Answer(k, 0).Len(); got != 1<<10 {
			t.Errorf("%s: %d bytes", k, got)
		}
	}
}

func TestChecker(t *testing.T) {
	body := workload.Body{Head: []byte("head"), Block: []byte("ab"), Blocks: 3, Tail: []byte("!")}
	tests := []struct {
		name     string
		body     string
		complete bool
		differs  bool
	}{
		{"the same", "headababab!", true, false},
		{"shorter", "headabab", false, false},
		{"longer", "headababab!!", false, true},
		{"another head", "hEadababab!", false, true},
		{"another block", "headabaXab!", false, true},
		{"a block too few", "headabab!", false, true},
		{"another tail", "headababab?", false, true},
		{"nothing", "", false, false},
	}
	for _, tt := range tests {
		for size := 1; size <= len(tt.body)+1; size++ {
			c := workload.NewChecker(body)
			var err error
			for rest := tt.body; rest != "" && err == nil; {
				n := min(size, len(rest))
				err = c.Accept([]byte(rest[:n]))
				rest = rest[n:]
			}
			if differs := errors.Is(err, workload.ErrDiffers); differs != tt.differs {
				t.Errorf("%s in pieces of %d: error %v; want one: %v", tt.name, size, err, tt.differs)
			}
			if err == nil && c.Complete() != tt.complete {
				t.Errorf("%s in pieces of %d: complete is %v; want %v", tt.name, size, c.Complete(), tt.complete)
			}
		}
	}
}

func TestUpstreamReadsEveryKind(t *testing.T) {
	u := workload.NewUpstream()
	for _, k := range kinds {
		blocks := 0
		if strings.HasPrefix(string(k), "big") {
			blocks = 3
		}
		e := workload.New(k, "127.0.0.1:1", blocks)
		e.Renumber(77)
		_, body, _ := bytes.Cut(e.Request, []byte("\r\n\r\n"))
		call, err := u.Read(body)
		if err != nil || call != (workload.Call{Kind: k, Number: 77, Blocks: blocks}) {
			t.Fatalf("Read of %s = %+v, %v", k, call, err)
		}
		var want, got bytes.Buffer
		if _, err := e.Answer.WriteTo(&want); err != nil {
			t.Fatal(err)
		}
		if _, err := u.Answer(call).WriteTo(&got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want.Bytes(), got.Bytes()) {
			t.Errorf("%s: the upstream's answer differs from the expected one:\n%.200s\n%.200s", k, got.Bytes(), want.Bytes())
		}
	}
}

// TestUpstreamDetectsEveryChange changes each byte of a request in turn.
func TestUpstreamDetectsEveryChange(t *testing.T) {
	u := workload.NewUpstream()
	e := workload.New(workload.JSON, "127.0.0.1:1", 0)
	_, body, _ := bytes.Cut(e.Request, []byte("\r\n\r\n"))
	want, err := u.Read(body)
	if err != nil {
		t.Fatal(err)
	}
	for i := range body {
		changed := bytes.Clone(body)
		changed[i] ^= 1
		if got, err := u.Read(changed); err == nil && got == want {
			t.Errorf("a change of byte %d (%q) was not detected", i, body[i])
		}
	}
	for _, foreign := range []string{"", "{}", `{"id":1}`, string(body) + " ", string(body[:len(body)-1])} {
		if _, err := u.Read([]byte(foreign)); !errors.Is(err, workload.ErrForeign) {
			t.Errorf("Read(%.50q) = %v; want ErrForeign", foreign, err)
		}
	}
}

func TestRenumberKeepsLengths(t *testing.T) {
	e := workload.New(workload.SSE, "127.0.0.1:1", 0)
	length := len(e.Request)
	for _, n := range []int{0, 1, 999_999_999, 1_000_000_000, 2_000_000_001} {
		e.Renumber(n)
		if len(e.Request) != length || !bytes.Contains(e.Request, []byte(`,"method":"tools/call"`)) {
			t.Errorf("number %d made the request invalid:\n%s", n, e.Request)
		}
	}
}
