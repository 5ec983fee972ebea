package gosdktask_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
)

// authenticated makes the SDK check bearer tokens. Each token is the name of a user, except one
// token without a user, and one with only a subject. Requests without a token have no user.
func authenticated(next http.Handler) http.Handler {
	check := auth.RequireBearerToken(func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		info := &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}
		switch token {
		case "service":
			info.UserID = ""
		case "subject":
			info.UserID, info.Extra = "", map[string]any{"sub": "carol"}
		}
		return info, nil
	}, nil)(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			next.ServeHTTP(w, r)
			return
		}
		check.ServeHTTP(w, r)
	})
}

// Only its owner sees a task, and an owner can list its tasks. This holds whether the SDK or
// the program identifies the owner. No user name equals the owner of unidentified clients.
func TestOnlyOwnerSeesTask(t *testing.T) {
	bearer := func(user string) http.Header {
		if user == "" {
			return nil
		}
		return http.Header{"Authorization": {"Bearer " + user}}
	}
	header := func(user string) http.Header { return http.Header{"X-User": {user}} }
	own := func(o *gosdktask.Options) {
		o.Owner = func(_ context.Context, r mcp.Request) string { return r.GetExtra().Header.Get("X-User") }
	}
	for name, tt := range map[string]struct {
		change func(*gosdktask.Options)
		as     func(user string) http.Header
	}{
		"token": {func(*gosdktask.Options) {}, bearer},
		"owner": {own, header},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, stateless, tt.change)
			users := []string{"alice", "bob", "", "anonymous", "local"}
			for _, user := range users {
				s.head = tt.as(user)
				id := s.post("tools/call", `{"name":"wait","task":{}}`).member("task", "taskId")
				listed := s.post("tasks/list", `{}`)
				if user != "" && !strings.Contains(string(listed.Result), id) || strings.Count(string(listed.Result), `"taskId"`) > 1 {
					t.Errorf("%q lists %s %v", user, listed.Result, listed.Error)
				}
				for _, other := range users {
					if other == user {
						continue
					}
					s.head = tt.as(other)
					for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/result"} {
						if a := s.post(method, `{"taskId":"`+id+`"}`); a.Error == nil || a.Error.Code != -32602 || a.Error.Message != "Task not found" {
							t.Errorf("%s of a task of %q by %q: %s %v", method, user, other, a.Result, a.Error)
						}
					}
				}
			}
		})
	}
}

// The subject of a token is its user if it names no other. A token without either gets no tasks,
// because its tasks would belong to all such tokens.
func TestTokenWithoutUserIsRefused(t *testing.T) {
	s := newSite(t, stateless)
	s.head = http.Header{"Authorization": {"Bearer subject"}}
	id := s.post("tools/call", `{"name":"wait","task":{}}`).member("task", "taskId")
	if a := s.post("tasks/list", `{}`); id == "" || !strings.Contains(string(a.Result), id) {
		t.Errorf("tasks/list: %s %v", a.Result, a.Error)
	}
	s.head = http.Header{"Authorization": {"Bearer carol"}}
	if a := s.post("tasks/get", `{"taskId":"`+id+`"}`); a.Error != nil {
		t.Errorf("tasks/get: %v", a.Error)
	}
	s.head = http.Header{"Authorization": {"Bearer service"}}
	for method, params := range map[string]string{"tools/call": `{"name":"wait","task":{}}`, "tasks/list": `{}`, "tasks/get": `{"taskId":"` + id + `"}`} {
		if a := s.post(method, params); a.Error == nil || !strings.Contains(a.Error.Message, "does not name its user") {
			t.Errorf("%s: %s %v", method, a.Result, a.Error)
		}
	}
	if a := s.post("tools/call", `{"name":"optional"}`); a.Error != nil {
		t.Errorf("a call without a task: %v", a.Error)
	}
}
