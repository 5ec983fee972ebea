// Package model is a scripted language model behind an HTTP server. It implements the APIs of
// Anthropic, OpenAI and Google, so that agent hosts can run without a real model.
//
// The model calls one tool with fixed arguments. When it gets the result, it repeats the
// result and stops. If the result asks for another call, it makes the same call again, unless
// its script forbids this. The package is independent of the hosts and the gate.
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

// A Script defines the behaviour of the model.
type Script struct {
	Tool      string // the end of the tool's name: hosts put the server's name before it
	Arguments string // a JSON object
	MaxCalls  int    // the model gives up after this many calls
	Retry     bool   // the model repeats a call that the host timed out
	Again     string // a user message that starts the script again
}

// A Turn is one request that the model answered.
type Turn struct {
	At      time.Time
	API     string
	Results []string // the results of the calls so far, or since the message Again
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

// Turns returns the answered requests so far. It omits requests without tools, such as those
// for a title of the conversation.
func (s *Server) Turns() []Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Turn(nil), s.turns...)
}

// Unknown returns the requests that the model could not answer.
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

// serve reads a request of one API and answers it.
func serve[T any](s *Server, w http.ResponseWriter, r *http.Request, answer func(*Server, http.ResponseWriter, *http.Request, *T)) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return // the host has disconnected
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
	_ = json.MarshalWrite(w, value) // a disconnected host needs no answer
}

// id returns a unique identifier.
func (s *Server) id(prefix string) string { return fmt.Sprintf("%s_%06d", prefix, s.ids.Add(1)) }

// text returns the text of a member that is a string or a list of parts.
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
