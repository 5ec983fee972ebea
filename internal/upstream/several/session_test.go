package several

import (
	"log/slog"
	"strconv"
	"testing"
	"time"
)

// An anonymous client that begins many sessions does not end those of named clients.
func TestAnonymousSessionsDoNotEndOthers(t *testing.T) {
	e := New("/mcp", nil, nil, time.Second, slog.New(slog.DiscardHandler))
	defer e.Close()
	named := e.Begin("ann", nil)
	for i := range maxSessions {
		id := strconv.Itoa(i)
		e.sessions.byID[id] = &Session{ID: id, used: time.Now()}
	}
	for range 3 {
		e.Begin("", nil)
	}
	if s, err := e.Session(t.Context(), "ann", named.ID); s == nil || err != nil {
		t.Error("the session of a named client has ended")
	}
	if n := len(e.sessions.byID); n > maxSessions+1 {
		t.Errorf("%d sessions", n)
	}
}
