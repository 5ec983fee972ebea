package app_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// If an agent's token is removed from the file, the agent is disconnected at once: its stream
// ends, its waiting request is answered, its call does not run even if it is approved later,
// and a request with an incomplete body is refused. Another agent, with a valid token, still
// waits.
func TestReloadRevokes(t *testing.T) {
	const operator, revoked, stays = "0123456789abcdefghijklmnop", "tga_0123456789abcdefghijklmnop", "tga_ponmlkjihgfedcba9876543210"
	token := func(name, token string) string {
		sum := sha256.Sum256([]byte(token))
		return "{name: " + name + ", hash: 'sha256:" + hex.EncodeToString(sum[:]) + "'}"
	}
	both := token("ci", revoked) + ", " + token("cd", stays)
	r := startReloadable(t, "default: approve\nwaiting: {hold: 9m}\nidentity: {tokens: ["+both+"]}\n", "token: "+operator+", ")

	stream := r.open(http.MethodGet, revoked, "")
	first, second := r.open(http.MethodPost, revoked, callOf("first")), r.open(http.MethodPost, stays, callOf("second"))
	ids := r.pending(operator, 2)
	late, inTime := r.beginRequest(revoked), r.beginRequest(stays)

	r.write(strings.Replace(r.text(), both, token("cd", stays), 1))
	if rest, err := io.ReadAll(stream); err != nil && !strings.Contains(err.Error(), "EOF") {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
	if answer, _ := io.ReadAll(first); !strings.Contains(string(answer), `"error_type":"unauthenticated"`) {
		t.Errorf("the held request was answered %s", answer)
	}
	if status, answer := r.ask(revoked, "x"); status != http.StatusUnauthorized {
		t.Fatalf("the removed token is answered %d %s", status, answer)
	}
	if status, answer := late("tools/list"); status != http.StatusUnauthorized || !strings.Contains(answer, `"error_type":"unauthenticated"`) {
		t.Errorf("the request whose body came later was answered %d %s", status, answer)
	}
	if status, answer := inTime("tools/list"); status != http.StatusOK || !strings.Contains(answer, `"tools"`) {
		t.Errorf("the request of the agent whose token stays was answered %d %s", status, answer)
	}
	r.approve(operator, ids["first"])
	r.approve(operator, ids["second"])
	if answer, err := io.ReadAll(second); !strings.Contains(string(answer), `"content":[]`) {
		t.Errorf("the agent whose token stays was answered %s, %v", answer, err)
	}
	if got := r.api(operator, http.MethodGet, ids["first"], ""); !strings.Contains(got, `"state":"approved"`) {
		t.Errorf("the call of the revoked agent: %s", got)
	}
}

func callOf(tool string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool + `","arguments":{}}}`
}

// open sends a request to the agents' listener, and returns the answer once it has begun.
func (r *reloadable) open(method, token, body string) io.Reader {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.AgentAddr()+"/mcp", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s is answered %d", method, resp.StatusCode)
	}
	return resp.Body
}

// beginRequest sends the headers of a request, and waits until the gate reads the body. The
// returned function sends a body with the given method, and returns the answer.
func (r *reloadable) beginRequest(token string) (finish func(method string) (int, string)) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.AgentAddr())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"+
		"Authorization: Bearer %s\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n", r.AgentAddr(), token)
	answers := bufio.NewReader(conn)
	if line, err := answers.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		r.t.Fatalf("the gate does not ask for the body: %q, %v", line, err)
	}
	if line, err := answers.ReadString('\n'); err != nil || line != "\r\n" {
		r.t.Fatalf("the gate does not ask for the body: %q, %v", line, err)
	}
	return func(method string) (int, string) {
		r.t.Helper()
		_ = conn.SetDeadline(time.Now().Add(patience))
		body := `{"jsonrpc":"2.0","id":8,"method":"` + method + `"}`
		fmt.Fprintf(conn, "%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			r.t.Fatal(err)
		}
		return resp.StatusCode, string(answer)
	}
}

// api makes a request below /api/approvals of the operators' API.
func (r *reloadable) api(token, method, path, body string) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.OperatorAddr()+"/api/approvals"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s %s: %d %s, %v", method, path, resp.StatusCode, answer, err)
	}
	return string(answer)
}

// pending waits for n pending calls, and returns the paths of their approvals by tool.
func (r *reloadable) pending(token string, n int) map[string]string {
	r.t.Helper()
	paths := make(map[string]string)
	eventually(r.t, "the calls are pending", func() bool {
		var list struct {
			Approvals []struct {
				ID   string `json:"id"`
				Tool string `json:"tool"`
			} `json:"approvals"`
		}
		if err := json.Unmarshal([]byte(r.api(token, http.MethodGet, "", "")), &list); err != nil {
			r.t.Fatal(err)
		}
		for _, a := range list.Approvals {
			paths[a.Tool] = "/" + a.ID
		}
		return len(paths) == n
	})
	return paths
}

func (r *reloadable) approve(token, path string) {
	r.t.Helper()
	var shown struct {
		Digest string `json:"shownDigest"`
	}
	if err := json.Unmarshal([]byte(r.api(token, http.MethodGet, path, "")), &shown); err != nil {
		r.t.Fatal(err)
	}
	r.api(token, http.MethodPost, path+"/approve", `{"shownDigest":"`+shown.Digest+`"}`)
}
