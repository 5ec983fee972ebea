// Package model is a scripted language model behind an HTTP server. Agent hosts
// take it for Anthropic's, OpenAI's or Google's service, so that they can be run
// without one.
//
// The model wants one thing: to call one tool with fixed arguments. When the
// result is there it repeats the result and stops. If the result says that the
// call should be made again, it makes the same call again, unless its script
// forbids that. The package knows nothing of the hosts or the gate.
package model

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const maxBody = 32 << 20 // bytes of one request: hosts send long prompts

// A Script says what the model does.
type Script struct {
	Tool      string // the end of the tool's name: hosts put the server's name before it
	Arguments string // a JSON object
	MaxCalls  int    // the model gives up after so many calls
	Retry     bool   // the model also calls again when a call took too long for the host
	Again     string // when the user says this, everything begins anew
}

// A Turn is one request that the model answered.
type Turn struct {
	At      time.Time
	API     string
	Results []string // what the calls of the tool returned so far, or since the user said Again
	Called  bool     // the answer is a call of the tool
}

// A Server is the scripted model. It is an [http.Handler].
type Server struct {
	script Script
	now    func() time.Time
	ids    atomic.Int64

	mu    sync.Mutex
	turns []Turn
	odd   []string
}

// New returns a model that follows the script.
func New(script Script, now func() time.Time) *Server {
	return &Server{script: script, now: now}
}

// Turns returns what the model has been asked so far. Requests that offered no
// tools, such as those for a title of the conversation, are not among them.
func (s *Server) Turns() []Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Turn(nil), s.turns...)
}

// Unknown returns the requests that the model had no answer to.
func (s *Server) Unknown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.odd...)
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/messages"):
		serve(s, w, r, anthropicAnswer)
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/chat/completions"):
		serve(s, w, r, chatAnswer)
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/responses"):
		serve(s, w, r, responsesAnswer)
	case strings.HasSuffix(path, ":generateContent"), strings.HasSuffix(path, ":streamGenerateContent"):
		serve(s, w, r, geminiAnswer)
	case strings.HasSuffix(path, "/count_tokens"):
		reply(w, object{"input_tokens": 1})
	case strings.HasSuffix(path, ":countTokens"):
		reply(w, object{"totalTokens": 1})
	case strings.HasSuffix(path, "/models"):
		reply(w, object{"object": "list", "data": []object{{"id": "scripted", "object": "model", "created": 1, "owned_by": "thoughtgate"}}, "models": []object{}})
	default:
		s.mu.Lock()
		s.odd = append(s.odd, r.Method+" "+path)
		s.mu.Unlock()
		http.Error(w, `{"error":{"message":"the scripted model does not know this","type":"not_found"}}`, http.StatusNotFound)
	}
}

// object is a JSON object that is written.
type object = map[string]any

// serve reads a request of one API and has it answered.
func serve[T any](s *Server, w http.ResponseWriter, r *http.Request, answer func(*Server, http.ResponseWriter, *http.Request, *T)) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return // the host is gone
	}
	q := new(T)
	if err := json.Unmarshal(body, q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(s, w, r, q)
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.MarshalWrite(w, value) // a host that is gone needs no answer
}

// id returns an identifier that was not used before.
func (s *Server) id(prefix string) string { return fmt.Sprintf("%s_%06d", prefix, s.ids.Add(1)) }

// text returns what a member says that is a string, or a list of parts with text.
func text(value jsontext.Value) string {
	var plain string
	if json.Unmarshal(value, &plain) == nil {
		return plain
	}
	var parts []struct {
		Type    string         `json:"type"`
		Text    string         `json:"text"`
		Content jsontext.Value `json:"content"`
	}
	if json.Unmarshal(value, &parts) != nil {
		return string(value)
	}
	var lines []string
	for _, p := range parts {
		switch {
		case p.Text != "":
			lines = append(lines, p.Text)
		case p.Content != nil:
			lines = append(lines, text(p.Content))
		default:
			lines = append(lines, "["+p.Type+"]")
		}
	}
	return strings.Join(lines, "\n")
}
