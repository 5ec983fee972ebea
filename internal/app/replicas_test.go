package app_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Three replicas share one store: a call is held on one, decided on another and awaited on a
// third, and runs once. A client with a stream at the third gets every step, once and in
// order.
func TestReplicas(t *testing.T) {
	servers := map[string]func(t *testing.T) string{
		"PostgreSQL": func(t *testing.T) string {
			server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
			if !testenv.Available(t, err) {
				return ""
			}
			t.Cleanup(func() { server.Stop() })
			return server.URL()
		},
		"Redis": func(t *testing.T) string {
			server, err := testenv.StartRedis(context.WithoutCancel(t.Context()))
			if !testenv.Available(t, err) {
				return ""
			}
			t.Cleanup(func() { server.Stop() })
			return server.URL()
		},
	}
	for name, open := range servers {
		t.Run(name, func(t *testing.T) {
			if url := open(t); url != "" {
				shareStore(t, url)
			}
		})
	}
}

func shareStore(t *testing.T, store string) {
	var ran atomic.Int64
	up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		if strings.Contains(string(body), "tools/call") {
			ran.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[{"type":"text","text":"done"}]}}`)
	}))
	defer up.Close()
	defer http.DefaultClient.CloseIdleConnections()
	text := strings.NewReplacer("store: 'memory:'", "store: '"+store+"'", "operators: {", "operators: {token: secret-of-the-operators, ").Replace(gatewayFor(up.URL)) +
		"rules: [{match: 'hold_*', action: approve}]\ndefault: deny\nstorage: {timeout: 1m}\n"
	a, stopA := start(t, text)
	b, stopB := start(t, text)
	c, stopC := start(t, text)

	next := hear(t, c.AgentAddr())
	created := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_x","task":{}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	result := make(chan string, 2)
	for _, replica := range []string{c.AgentAddr(), a.AgentAddr()} {
		go func() { result <- say(t, replica, "tasks/result", `{"taskId":"`+id+`"}`) }()
	}
	if answer := approve(t, b.OperatorAddr(), id); !strings.Contains(answer, `"approved"`) && !strings.Contains(answer, `"executing"`) {
		t.Errorf("approve: %s", answer)
	}
	for range 2 {
		if answer := <-result; !strings.Contains(answer, "done") {
			t.Errorf("tasks/result: %s", answer)
		}
	}
	if n := ran.Load(); n != 1 {
		t.Errorf("the call ran %d times; want once", n)
	}
	for _, want := range []string{"Waiting for approval", "Approved", "Running", `"status":"completed"`} {
		if told := next(); !strings.Contains(told, id) || !strings.Contains(told, want) {
			t.Errorf("notified of %s; want %s", told, want)
		}
	}
	shareLogins(t, store, a, b)
	for _, stop := range []func() error{stopA, stopB, stopC} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// shareLogins logs in on one replica and out on another. A session that was sealed with a key
// derived from the URL of the store, as in an earlier version, is refused.
func shareLogins(t *testing.T, store string, a, b *app.App) {
	t.Helper()
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	one, other := "http://"+a.OperatorAddr(), "http://"+b.OperatorAddr()
	_, _, header := request(t, client, "POST", one+"/login", "token=secret-of-the-operators", "Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded")
	cookie, _, _ := strings.Cut(header.Get("Set-Cookie"), ";")
	status, page, _ := request(t, client, "GET", other+"/", "", "Cookie", cookie)
	_, rest, _ := strings.Cut(page, `name="csrf" value="`)
	form, _, _ := strings.Cut(rest, `"`)
	if status != 200 || form == "" {
		t.Fatalf("the login is valid on only one replica: %d", status)
	}
	name, _, _ := strings.Cut(cookie, "=")
	if status, _, _ := request(t, client, "GET", other+"/api/approvals", "", "Cookie", name+"="+forgedFrom(t, store)); status != 401 {
		t.Errorf("a session sealed with a key from the URL of the store: %d", status)
	}

	// A stream of one replica ends after a logout on another.
	stream, err := http.NewRequestWithContext(t.Context(), http.MethodGet, one+"/api/approvals/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	stream.Header.Set("Cookie", cookie)
	open, err := client.Do(stream)
	if err != nil || open.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", open, err)
	}
	defer open.Body.Close()
	status, _, _ = request(t, client, "POST", other+"/logout", "csrf="+form, "Cookie", cookie, "Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded")
	if status != 303 {
		t.Fatalf("logout: %d", status)
	}
	for _, replica := range []string{one, other} {
		if status, _, _ := request(t, client, "GET", replica+"/api/approvals", "", "Cookie", cookie); status != 401 {
			t.Errorf("after the logout: %d", status)
		}
	}
	_, _ = io.Copy(io.Discard, open.Body) // until the stream ends
}

// forgedFrom returns the session of an administrator, sealed as in the version that derived
// its key from the URL of the store.
func forgedFrom(t *testing.T, store string) string {
	t.Helper()
	derive := func(secret []byte, info string) []byte {
		derived, err := hkdf.Key(sha256.New, secret, nil, info, 32)
		if err != nil {
			t.Fatal(err)
		}
		return derived
	}
	block, err := aes.NewCipher(derive(derive([]byte(store), "thoughtgate: what clients hand back"), "thoughtgate operators: sessions"))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256([]byte("secret-of-the-operators"))
	text := `{"i":"x","v":"` + hex.EncodeToString(hash[:]) + `","x":99999999999}`
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, []byte(text), []byte("session")))
}

// hear opens the stream of a client's notifications, and returns a function that reads the
// next one.
func hear(t *testing.T, address string) (next func() string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Mcp-Session-Id", "s-1")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	events := jsonrpc.NewEventReader(resp.Body, 1<<20)
	return func() string {
		e, err := events.Next()
		if err != nil {
			return err.Error()
		}
		return string(e.Data)
	}
}
