package operator_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/operator"
)

// An upload is a request whose body has not arrived completely.
type upload struct {
	net.Conn

	t  *testing.T
	in *bufio.Reader
}

// upload sends the headers of a request, and returns when the gate reads the body.
func (h *fixture) upload(path string, length int, headers ...string) *upload {
	h.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\nExpect: 100-continue\r\n",
		path, strings.TrimPrefix(h.url, "http://"), length)
	for i := 0; i+1 < len(headers); i += 2 {
		fmt.Fprintf(conn, "%s: %s\r\n", headers[i], headers[i+1])
	}
	io.WriteString(conn, "\r\n")
	u := &upload{conn, h.t, bufio.NewReader(conn)}
	if line, err := u.in.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		h.t.Fatalf("the body is not read: %q, %v", line, err)
	}
	if _, err := u.in.ReadString('\n'); err != nil {
		h.t.Fatal(err)
	}
	return u
}

// finish sends the body, and returns the response.
func (u *upload) finish(body string) (int, string) {
	u.t.Helper()
	io.WriteString(u, body)
	resp, err := http.ReadResponse(u.in, nil)
	if err != nil {
		u.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		u.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestRightsEndDuringBody checks that the rights at the end of the request body apply, not those
// at its beginning.
func TestRightsEndDuringBody(t *testing.T) {
	replace := func(change func(*operator.Config)) func(*fixture, string) {
		return func(h *fixture, _ string) { h.auth.Replace(h.replica(change).auth) }
	}
	for name, tt := range map[string]struct {
		end    func(h *fixture, cookie string)
		token  bool // applies to requests with a token as well
		status int
		text   string
	}{
		"nothing changed": {func(*fixture, string) {}, true, 200, "ann approver [oncall]"},
		"token removed":   {replace(func(c *operator.Config) { c.Tokens = c.Tokens[:1] }), true, 401, "unauthorized"},
		"role lowered":    {replace(func(c *operator.Config) { c.Tokens[1].Role = operator.Viewer }), true, 403, "forbidden"},
		"groups changed":  {replace(func(c *operator.Config) { c.Tokens[1].Groups = nil }), true, 200, "ann approver []"},
		"signed out elsewhere": {func(h *fixture, cookie string) {
			other := h.replica(nil)
			_, page, _ := other.do("GET", "/", "", "Cookie", cookie)
			form := page[strings.LastIndex(page, " ")+1:]
			other.want(303, "", "POST", "/logout", "csrf="+form, "Cookie", cookie, sameOrigin, "same-origin")
		}, false, 401, "unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, nil)
			h.want(303, "", "POST", "/login", "token="+annToken, "Origin", h.url)
			cookie, form := h.cookie(), h.form()
			body := "csrf=" + form + "&reason=" + strings.Repeat("x", 100<<10)
			sent := map[string]*upload{
				"a form":   h.upload("/decide", len(body), "Cookie", cookie, sameOrigin, "same-origin"),
				"a script": h.upload("/decide", len(body), "Cookie", cookie, sameOrigin, "same-origin", operator.FormHeader, form),
			}
			if tt.token {
				sent["a token"] = h.upload("/decide", len(body), "Authorization", "Bearer "+annToken)
			}
			tt.end(h, cookie)
			for by, u := range sent {
				if status, text := u.finish(body); status != tt.status || !strings.Contains(text, tt.text) {
					t.Errorf("with %s: %d %q; want %d %q", by, status, text, tt.status, tt.text)
				}
			}
		})
	}
}

// TestReplacementAppliesToOldHandlers checks that handlers of a replaced Auth use its
// replacement.
func TestReplacementAppliesToOldHandlers(t *testing.T) {
	h := serve(t, nil)
	h.want(200, "ann", "GET", "/", "", "Authorization", "Bearer "+annToken)
	h.auth.Replace(h.replica(func(c *operator.Config) { c.Tokens = c.Tokens[:1] }).auth)
	h.want(401, "unauthorized", "GET", "/", "", "Authorization", "Bearer "+annToken)
}
