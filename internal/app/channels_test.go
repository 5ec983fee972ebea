package app_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
)

// The keys that sign the gate's messages and the receiver's decisions.
var (
	questionKey = []byte("questions-are-signed-with-this-1")
	answerKey   = []byte("answers-are-signed-with-this-one")
)

// signature is a second implementation of the Standard Webhooks signature.
func signature(key []byte, id, at, body string) string {
	mac := hmac.New(sha256.New, key)
	io.WriteString(mac, id+"."+at+"."+body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// A receiver is an external system to which the gate posts messages.
type receiver struct {
	t   *testing.T
	url string

	answer atomic.Pointer[http.HandlerFunc]      // nil means 204
	relay  atomic.Pointer[httputil.ReverseProxy] // answers instead if it is not nil

	mu  sync.Mutex
	got []received
}

// A received is a message that arrived, with any answer.
type received struct {
	id, kind, stage string
	approval        struct {
		ID          string `json:"id"`
		Tool        string `json:"tool"`
		ShownDigest string `json:"shownDigest"`
	}
	body string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	id, at := q.Header.Get("Webhook-Id"), q.Header.Get("Webhook-Timestamp")
	if want := signature(questionKey, id, at, string(body)); q.Header.Get("Webhook-Signature") != want {
		r.t.Errorf("signature %q; want %q", q.Header.Get("Webhook-Signature"), want)
	}
	var m struct {
		Type string `json:"type"`
		Data struct {
			Stage    string `json:"stage"`
			Approval struct {
				ID          string `json:"id"`
				Tool        string `json:"tool"`
				ShownDigest string `json:"shownDigest"`
			} `json:"approval"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	r.got = append(r.got, received{id, m.Type, m.Data.Stage, m.Data.Approval, string(body)})
	r.mu.Unlock()
	if relay := r.relay.Load(); relay != nil {
		q.Body = io.NopCloser(strings.NewReader(string(body)))
		relay.ServeHTTP(w, q)
		return
	}
	if answer := r.answer.Load(); answer != nil {
		(*answer)(w, q)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// answers sets the handler of later messages.
func (r *receiver) answers(h http.HandlerFunc) { r.answer.Store(&h) }

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

// await returns the first message that satisfies a condition.
func (r *receiver) await(what string, holds func(received) bool) received {
	r.t.Helper()
	var found received
	eventually(r.t, what, func() bool {
		for _, m := range r.all() {
			if holds(m) {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

func (r *receiver) stage(stage string) received {
	r.t.Helper()
	return r.await("a message about "+stage, func(m received) bool { return m.stage == stage })
}

// A hooked gate sends messages to a receiver.
type hooked struct {
	*receiver

	gate *app.App
	stop func() error
	text string
	ran  atomic.Int64
}

// startHooked starts a gate with a webhook. The receiver may decide with the login
// risk-engine.
func startHooked(t *testing.T, store, webhook string) *hooked {
	t.Helper()
	return startAsking(t, newReceiver(t), store, webhook)
}

// startAsking starts a gate with the given receiver, and a channel named chat.
func startAsking(t *testing.T, r *receiver, store, webhook string, chats ...string) *hooked {
	t.Helper()
	h := &hooked{receiver: r}
	up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "tools/call") {
			h.ran.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[{"type":"text","text":"done"}]}}`)
	}))
	t.Cleanup(up.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	names := "[inbox, risk]"
	if len(chats) > 0 {
		names = "[inbox, risk, chat]"
	}
	h.text = strings.NewReplacer("store: 'memory:'", "store: '"+store+"'", "operators: {", "operators: {token: secret-of-the-operators, ").Replace(gatewayFor(up.URL)) +
		"rules: [{match: 'other_*', action: approve, workflow: people}, {match: 'hold_*', action: approve}, {match: 'get_*', action: approve}]\ndefault: deny\n" +
		"workflows: {default: {channels: " + names + ", redact: [arguments.password]}, people: {channels: [inbox], approvers: [operator]}}\n" +
		fmt.Sprintf("channels: {%s risk: {webhook: {url: %s/hook, secret: %s, %s answers: {secret: %s, approver: risk-engine}}}}\n",
			strings.Join(append(chats, ""), ", "), h.url, secretOf(questionKey), webhook, secretOf(answerKey))
	h.gate, h.stop = start(t, h.text)
	t.Cleanup(func() { h.stop() })
	return h
}

func secretOf(key []byte) string { return "whsec_" + base64.StdEncoding.EncodeToString(key) }

// hold makes a call that is held, and waits for its answer in the background.
func (h *hooked) hold(tool string) <-chan string {
	answer := make(chan string, 1)
	go func() {
		body := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"password":"hunter2","n":1}}}`)
		r, _ := http.NewRequestWithContext(context.WithoutCancel(h.t.Context()), http.MethodPost, "http://"+h.gate.AgentAddr()+"/mcp", body)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Mcp-Session-Id", "s-1")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answer <- string(text)
	}()
	return answer
}

// decide posts a decision with a signature by key, made at the given time.
func (h *hooked) decide(key []byte, at time.Time, channel, body string) (int, string) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, "http://"+h.gate.OperatorAddr()+"/api/channels/"+channel+"/decisions", strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	seconds := strconv.FormatInt(at.Unix(), 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Webhook-Id", "msg_1")
	r.Header.Set("Webhook-Timestamp", seconds)
	r.Header.Set("Webhook-Signature", "v1,bm8= "+signature(key, "msg_1", seconds, body))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// decision returns a decision about a call that was received.
func (m received) decision(what string) string {
	return fmt.Sprintf(`{"type":"approval.decision","data":{"id":%q,"decision":%q,"reason":"low risk","shownDigest":%q}}`, m.approval.ID, what, m.approval.ShownDigest)
}

// channels returns the status of the gate's channels.
func (h *hooked) channels() string {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, "http://"+h.gate.OperatorAddr()+"/api/channels", http.NoBody)
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret-of-the-operators")
	return do(h.t, r)
}

// The receiver of a webhook decides with a signed message, and is notified of the call's
// result. The messages contain no redacted argument.
func TestWebhook(t *testing.T) {
	h := startHooked(t, "memory:", "allow_private: true,")
	answer := h.hold("hold_x")
	asked := h.stage("pending")
	if asked.kind != "approval.requested" || asked.approval.Tool != "hold_x" || strings.Contains(asked.body, "hunter2") {
		t.Errorf("the message is %+v", asked)
	}
	if status, body := h.decide(answerKey, time.Now(), "risk", asked.decision("approve")); status != http.StatusOK || !strings.Contains(body, `"by":"risk-engine"`) || !strings.Contains(body, `"via":{"kind":"channel","channel":"risk"}`) {
		t.Fatalf("decision: %d %s", status, body)
	}
	if text := <-answer; !strings.Contains(text, "done") {
		t.Errorf("answer %s", text)
	}
	h.stage("completed")
	seen := map[string]bool{}
	for _, m := range h.all() {
		if seen[m.id] {
			t.Errorf("%s was sent twice", m.id)
		}
		seen[m.id] = true
	}
	if status, body := h.decide(answerKey, time.Now(), "risk", asked.decision("approve")); status != http.StatusGone && status != http.StatusConflict {
		t.Errorf("the same answer again: %d %s", status, body)
	}
	if n := h.ran.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// A decision counts only if the receiver signed it recently with its own key, has seen the
// call, and is an approver of the workflow.
func TestWebhookRefusesInvalidDecisions(t *testing.T) {
	h := startHooked(t, "memory:", "allow_private: true,")
	h.hold("hold_x")
	asked := h.stage("pending")
	h.hold("other_x")
	other := asked
	eventually(t, "the call of another workflow", func() bool {
		list := listed(t, h.gate)
		other.approval.ID = idBefore(list, `"tool":"other_x"`)
		return strings.Contains(list, `"tool":"other_x"`)
	})
	now := time.Now()
	for name, c := range map[string]struct {
		key     []byte
		at      time.Time
		channel string
		body    string
		status  int
		kind    string
	}{
		"the key of the questions": {questionKey, now, "risk", asked.decision("approve"), http.StatusUnauthorized, "unauthorized"},
		"another key":              {[]byte("a key that nobody has given out!"), now, "risk", asked.decision("approve"), http.StatusUnauthorized, "unauthorized"},
		"an empty key":             {nil, now, "nobody", asked.decision("approve"), http.StatusUnauthorized, "unauthorized"},
		"an old message":           {answerKey, now.Add(-6 * time.Minute), "risk", asked.decision("approve"), http.StatusUnauthorized, "unauthorized"},
		"a message of tomorrow":    {answerKey, now.Add(24 * time.Hour), "risk", asked.decision("approve"), http.StatusUnauthorized, "unauthorized"},
		"another channel":          {answerKey, now, "other", asked.decision("approve"), http.StatusUnauthorized, "unauthorized"},
		"a question of ours":       {answerKey, now, "risk", asked.body, http.StatusBadRequest, "bad_request"},
		"another decision":         {answerKey, now, "risk", asked.decision("maybe"), http.StatusBadRequest, "bad_request"},
		"without a digest": {
			answerKey, now, "risk", `{"type":"approval.decision","data":{"id":"` + asked.approval.ID + `","decision":"approve"}}`,
			http.StatusPreconditionRequired, "digest_required",
		},
		"a call of others": {answerKey, now, "risk", other.decision("approve"), http.StatusForbidden, "forbidden"},
		"no such call": {
			answerKey, now, "risk", `{"type":"approval.decision","data":{"id":"tg_none","decision":"reject"}}`,
			http.StatusNotFound, "not_found",
		},
	} {
		if status, body := h.decide(c.key, c.at, c.channel, c.body); status != c.status || !strings.Contains(body, `"type":"`+c.kind+`"`) {
			t.Errorf("%s: %d %s; want %d %s", name, status, body, c.status, c.kind)
		}
	}
	if n := h.ran.Load(); n != 0 {
		t.Errorf("%d calls ran", n)
	}
}

// listed returns the list of held calls.
func listed(t *testing.T, gate *app.App) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+gate.OperatorAddr()+"/api/approvals", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret-of-the-operators")
	return do(t, r)
}

// idBefore returns the last id in text before a mark.
func idBefore(text, mark string) string {
	before, _, _ := strings.Cut(text, mark)
	id, _, _ := strings.Cut(before[strings.LastIndex(before, `"id":"`)+len(`"id":"`):], `"`)
	return id
}

// An unavailable receiver delays no other channel, and messages to it are not lost. The gate
// sends the same message again, operators see that it waits, and people decide in the inbox.
func TestWebhookDown(t *testing.T) {
	h := startHooked(t, "memory:", "allow_private: true,")
	h.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	h.hold("hold_x")
	first := h.stage("pending")
	eventually(t, "operators see the failure", func() bool {
		channels := h.channels()
		return strings.Contains(channels, `"waiting":1`) && strings.Contains(channels, "502 Bad Gateway")
	})
	h.await("the same message again", func(m received) bool { return len(h.all()) > 1 && m.id == first.id })
	h.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	eventually(t, "the failure is over", func() bool { return strings.Contains(h.channels(), `"waiting":0`) })
	decide(t, h.gate.OperatorAddr(), first.approval.ID, "reject")
	h.stage("rejected")
}

// The gate follows no redirects, and posts to private addresses only if the configuration
// allows it.
func TestWebhookPostsToPublicAddressesOnly(t *testing.T) {
	inside := newReceiver(t)
	h := startHooked(t, "memory:", "allow_private: true,")
	h.answers(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inside.url, http.StatusTemporaryRedirect)
	})
	h.hold("hold_x")
	eventually(t, "operators see the redirect", func() bool { return strings.Contains(h.channels(), "redirects are not followed") })
	private := startHooked(t, "memory:", "")
	private.hold("hold_x")
	eventually(t, "operators see the refusal", func() bool { return strings.Contains(private.channels(), "the address is private") })
	if len(inside.all())+len(private.all()) > 0 {
		t.Error("a private address was reached")
	}
}

// If a call is decided while its first message is being sent, or while the gate is stopped,
// the channel still gets the final state. Each message is received once.
func TestWebhookRestart(t *testing.T) {
	h := startHooked(t, "sqlite:"+filepath.Join(t.TempDir(), "gate.db"), "allow_private: true,")
	h.hold("hold_x")
	asked := h.stage("pending")
	entered := make(chan struct{}, 10)
	h.answers(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done() // the receiver hangs until the gate gives up
	})
	decide(t, h.gate.OperatorAddr(), asked.approval.ID, "reject")
	<-entered
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	taken := make(chan string, 10)
	h.answers(func(w http.ResponseWriter, r *http.Request) {
		taken <- r.Header.Get("Webhook-Id")
		w.WriteHeader(http.StatusOK)
	})
	h.gate, h.stop = start(t, h.text)
	if id := <-taken; id != asked.approval.ID+".rejected" {
		t.Errorf("received: %s", id)
	}
	eventually(t, "no message waits", func() bool { return strings.Contains(h.channels(), `"waiting":0`) })
	if len(taken) > 0 {
		t.Errorf("received twice: %s", <-taken)
	}
}

// The example receiver approves read-only calls, and leaves all others to people.
func TestWebhookExample(t *testing.T) {
	program := filepath.Join(t.TempDir(), "webhook")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../examples/webhook").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	proxy := newReceiver(t) // forwards to the example, which starts only after the gate
	h := startAsking(t, proxy, "memory:", "allow_private: true,")
	cmd := exec.CommandContext(t.Context(), program, "-listen", "127.0.0.1:0", "-gate", "http://"+h.gate.OperatorAddr())
	cmd.Env = []string{"QUESTIONS_SECRET=" + secretOf(questionKey), "ANSWERS_SECRET=" + secretOf(answerKey)}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewScanner(log)
	lines.Scan()
	_, address, _ := strings.Cut(lines.Text(), "listening at ")
	target, err := url.Parse(address)
	if err != nil || address == "" {
		t.Fatalf("the example printed %q", lines.Text())
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport = &http.Transport{DisableKeepAlives: true}
	proxy.relay.Store(forward)
	held, approved := h.hold("hold_get"), h.hold("get_file")
	h.stage("completed")
	if text := <-approved; !strings.Contains(text, "done") {
		t.Errorf("answer %s", text)
	}
	if n := h.ran.Load(); n != 1 {
		t.Errorf("%d calls ran", n)
	}
	decide(t, h.gate.OperatorAddr(), idBefore(listed(t, h.gate), `"tool":"hold_get"`), "reject")
	<-held
}
