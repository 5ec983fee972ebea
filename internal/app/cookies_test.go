package app_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Browsers send cookies to all ports of a host: if an operator who is logged in follows a
// link to the agents' listener, the browser sends the login cookie there. The gate must not
// forward it to the upstream, which could use it. It forwards other cookies.
func TestOperatorsCookiesAreNotForwarded(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	answer := listsNoTools(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[]}}`)
	})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, strings.Join(r.Header.Values("Cookie"), "|"))
		mu.Unlock()
		answer(w, r)
	}))
	defer up.Close()
	defer http.DefaultClient.CloseIdleConnections()
	a, stop := start(t, strings.Replace(gatewayFor(up.URL), "operators: {", "operators: {token: secret-of-the-operators, ", 1)+"rules: [{match: 'hold_*', action: approve}]\ndefault: forward\n")
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	_, _, header := request(t, client, "POST", "http://"+a.OperatorAddr()+"/login", "token=secret-of-the-operators",
		"Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded")
	login, _, _ := strings.Cut(header.Get("Set-Cookie"), ";")
	if login == "" {
		t.Fatal("no login")
	}
	agents := "http://" + a.AgentAddr() + "/mcp"
	call := func(name string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + name + `","task":{}}}`
	}
	const accept = "application/json, text/event-stream"
	for _, cookies := range []string{login, "a=b; " + login, login + "; a=b", "a=b;" + login + ";__Host-" + login + "; c=d"} {
		request(t, client, "GET", agents, "", "Cookie", cookies, "Accept", "text/html,*/*")
		request(t, client, "DELETE", agents, "", "Cookie", cookies, "Mcp-Session-Id", "s")
		request(t, client, "POST", agents, call("x"), "Cookie", cookies, "Accept", accept)
		_, created, _ := request(t, client, "POST", agents, call("hold_x"), "Cookie", cookies, "Accept", accept, "Mcp-Session-Id", "s")
		_, rest, _ := strings.Cut(created, `"taskId":"`)
		id, _, _ := strings.Cut(rest, `"`)
		approve(t, a.OperatorAddr(), id)
		_, result, _ := request(t, client, "POST", agents, `{"jsonrpc":"2.0","id":8,"method":"tasks/result","params":{"taskId":"`+id+`"}}`,
			"Cookie", cookies, "Accept", accept, "Mcp-Session-Id", "s")
		if !strings.Contains(result, `"content"`) {
			t.Errorf("the held call: %s", result)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) < 4*4 {
		t.Errorf("the upstream got %d requests", len(seen))
	}
	kept := 0
	for _, cookies := range seen {
		if strings.Contains(cookies, "thoughtgate") {
			t.Errorf("the upstream got %s", cookies)
		}
		if strings.Contains(cookies, "a=b") {
			kept++
		}
	}
	if kept < 3*3 {
		t.Errorf("%d requests had their other cookies", kept)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
