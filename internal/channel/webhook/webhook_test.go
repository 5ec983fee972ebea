package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// TestSignaturesMatchStandardWebhooks checks that the gate and the reference library accept each
// other's signatures.
func TestSignaturesMatchStandardWebhooks(t *testing.T) {
	key, err := ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	library, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	body, now := []byte(`{"type":"approval.requested","text":"ü"}`), time.Now()
	h := http.Header{}
	key.Sign(h, "tg_1.pending", now, body)
	if err := library.Verify(body, h); err != nil {
		t.Errorf("the library refuses the gate's signature: %v", err)
	}
	signed, err := library.Sign("msg_2", now, body)
	if err != nil {
		t.Fatal(err)
	}
	h.Set(idHeader, "msg_2")
	h.Set(signatureHeader, "v1a,other "+signed)
	if err := key.Verify(h, body, now); err != nil {
		t.Errorf("the gate refuses the library's signature: %v", err)
	}
}

// TestVerifyRefusesChangedMessages checks that a changed or old message is refused.
func TestVerifyRefusesChangedMessages(t *testing.T) {
	key, _ := ParseKey(secret)
	body, now := []byte(`{"a":1}`), time.Unix(1_700_000_000, 0)
	for name, change := range map[string]func(h http.Header){
		"another id":        func(h http.Header) { h.Set(idHeader, "tg_2") },
		"no id":             func(h http.Header) { h.Del(idHeader) },
		"another time":      func(h http.Header) { h.Set(timeHeader, "1700000001") },
		"no time":           func(h http.Header) { h.Del(timeHeader) },
		"no signature":      func(h http.Header) { h.Del(signatureHeader) },
		"without a version": func(h http.Header) { h.Set(signatureHeader, strings.TrimPrefix(h.Get(signatureHeader), "v1,")) },
	} {
		h := http.Header{}
		key.Sign(h, "tg_1", now, body)
		if err := key.Verify(h, body, now); err != nil {
			t.Fatal(err)
		}
		change(h)
		if err := key.Verify(h, body, now); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	h := http.Header{}
	key.Sign(h, "tg_1", now, body)
	if key.Verify(h, []byte(`{"a":2}`), now) == nil || Key(nil).Verify(h, body, now) == nil {
		t.Error("a message with another body or without a key is accepted")
	}
	for _, later := range []time.Duration{tolerance + time.Second, -tolerance - time.Second} {
		if key.Verify(h, body, now.Add(later)) == nil {
			t.Errorf("a message is accepted %s after it was signed", later)
		}
	}
}

// TestSystemWithoutKeyCannotDecide checks that an answer signed with an empty key is refused if
// the channel has no answer key.
func TestSystemWithoutKeyCannotDecide(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	hook := New(Config{URL: &url.URL{Scheme: "https", Host: "a"}, Now: func() time.Time { return now }})
	body, h := []byte(`{"type":"approval.decision","data":{"id":"tg_1","decision":"reject"}}`), http.Header{}
	Key(nil).Sign(h, "tg_1", now, body)
	if a, err := hook.Receive(t.Context(), h, body); !errors.Is(err, channel.ErrUnsigned) {
		t.Errorf("an answer signed with an empty key: %v, %v", a, err)
	}
}

func TestParseKey(t *testing.T) {
	for _, text := range []string{"", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_not base64 at all, not at all"} {
		if _, err := ParseKey(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestMessageHasExactName checks that a message has the exact name of a tool, with hidden
// characters escaped.
func TestMessageHasExactName(t *testing.T) {
	bodies := make(chan []byte, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- body
	}))
	t.Cleanup(s.Close)
	at, _ := url.Parse(s.URL)
	w := New(Config{URL: at, Private: true, Timeout: time.Minute, Now: time.Now})
	t.Cleanup(w.client.CloseIdleConnections)
	var q channel.Question
	q.Approval.Tool, q.Approval.Name = `delete_file\u202e\u0020`, "delete_file\u202e "
	if _, err := w.Ask(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	body := <-bodies
	var m Message
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	if got := m.Data.Approval; got.Tool != q.Approval.Tool || got.Name != q.Approval.Name || strings.ContainsRune(string(body), '\u202e') {
		t.Errorf("the receiver gets %s", body)
	}
}

// TestRefusedMessageCountsAsNotSent checks that a message counts as not sent only if the
// receiver certainly did not accept it.
func TestRefusedMessageCountsAsNotSent(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct {
		serve  http.HandlerFunc
		change func(*httptest.Server, *Webhook)
		unsent bool
	}{
		"refused":             {serve: status(http.StatusForbidden), unsent: true},
		"too many":            {serve: status(http.StatusTooManyRequests), unsent: true},
		"a redirect":          {serve: status(http.StatusTemporaryRedirect), unsent: true},
		"a failure":           {serve: status(http.StatusInternalServerError)},
		"a gateway gives up":  {serve: status(http.StatusGatewayTimeout)},
		"the connection ends": {serve: abort, change: func(_ *httptest.Server, w *Webhook) { transport(w).ForceAttemptHTTP2 = false }},
		"the stream is reset": {serve: abort},
		"no server":           {change: func(s *httptest.Server, _ *Webhook) { s.Close() }, unsent: true},
		"unknown certificate": {change: func(_ *httptest.Server, w *Webhook) { transport(w).TLSClientConfig = nil }, unsent: true},
		"no connection in time": {change: func(_ *httptest.Server, w *Webhook) {
			transport(w).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
			w.client.Timeout = 10 * time.Millisecond
		}, unsent: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.serve == nil {
				c.serve = func(http.ResponseWriter, *http.Request) { t.Error("the receiver got it") }
			}
			s := httptest.NewUnstartedServer(c.serve)
			s.EnableHTTP2 = true
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.StartTLS()
			t.Cleanup(s.Close)
			at, _ := url.Parse(s.URL)
			w := New(Config{URL: at, Private: true, Timeout: time.Minute, Now: time.Now})
			t.Cleanup(w.client.CloseIdleConnections)
			transport(w).TLSClientConfig = &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
			if c.change != nil {
				c.change(s, w)
			}
			_, err := w.Ask(t.Context(), channel.Question{})
			if unsent := new(channel.NotSentError); err == nil || errors.As(err, &unsent) != c.unsent || strings.Contains(err.Error(), s.URL) {
				t.Errorf("certainly not sent: %t, %v", !c.unsent, err)
			}
		})
	}
}

func transport(w *Webhook) *http.Transport { return w.client.Transport.(*http.Transport) }
