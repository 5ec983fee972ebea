// Command webhook is an example of a system that ThoughtGate asks by a webhook: it
// prints each question, approves calls of tools whose names begin with get_, and
// leaves all others to people.
//
// It needs the two secrets of the channel in the environment, and the URL of the
// gate's operators' listener:
//
//	QUESTIONS_SECRET=whsec_… ANSWERS_SECRET=whsec_… go run ./examples/webhook -gate http://127.0.0.1:8081 -channel risk
package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	r := &receiver{questions: secret("QUESTIONS_SECRET"), answers: secret("ANSWERS_SECRET")}
	listen := flag.String("listen", "127.0.0.1:8099", "`address` at which the gate reaches this program")
	flag.StringVar(&r.gate, "gate", "http://127.0.0.1:8081", "`URL` of the gate's operators' listener")
	flag.StringVar(&r.channel, "channel", "risk", "`name` of the channel")
	flag.Parse()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening at http://%s", l.Addr())
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.Serve(l))
}

// secret returns the key in an environment variable.
func secret(name string) []byte {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv(name), "whsec_"))
	if err != nil || len(key) == 0 {
		log.Fatalf("%s must be whsec_ and base64", name)
	}
	return key
}

// sign returns the signature of a message, as Standard Webhooks says.
func sign(key []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(fmt.Appendf(nil, "%s.%s.%s", id, at, body))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// A receiver takes questions and answers some of them.
type receiver struct {
	gate, channel      string
	questions, answers []byte // keys
}

// A question is what this program reads of a message.
type question struct {
	Type string `json:"type"`
	Data struct {
		Stage    string `json:"stage"`
		Page     string `json:"page"`
		Approval struct {
			ID          string `json:"id"`
			Tool        string `json:"tool"`
			Principal   string `json:"principal"`
			ShownDigest string `json:"shownDigest"`
			UnreadBytes int    `json:"unreadBytes"`
		} `json:"approval"`
	} `json:"data"`
}

// ServeHTTP takes a message of the gate.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, 1<<20))
	if err != nil {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		return
	}
	id, at := q.Header.Get("Webhook-Id"), q.Header.Get("Webhook-Timestamp")
	seconds, _ := strconv.ParseInt(at, 10, 64)
	recent := time.Since(time.Unix(seconds, 0)).Abs() < 5*time.Minute
	if !recent || !hmac.Equal([]byte(q.Header.Get("Webhook-Signature")), []byte(sign(r.questions, id, at, body))) {
		http.Error(w, "not signed", http.StatusUnauthorized)
		return
	}
	var m question
	if err := json.Unmarshal(body, &m); err != nil {
		http.Error(w, "not JSON", http.StatusBadRequest)
		return
	}
	a := m.Data.Approval
	log.Printf("%s: %s wants %s: %s", m.Data.Stage, a.Principal, a.Tool, m.Data.Page)
	if m.Data.Stage == "pending" && strings.HasPrefix(a.Tool, "get_") && a.UnreadBytes == 0 {
		if err := r.approve(q.Context(), m); err != nil {
			log.Print(err)
			http.Error(w, "try again", http.StatusServiceUnavailable) // the gate sends the question again
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// approve sends a signed decision to the gate.
func (r *receiver) approve(ctx context.Context, m question) error {
	body, err := json.Marshal(map[string]any{"type": "approval.decision", "data": map[string]any{
		"id": m.Data.Approval.ID, "decision": "approve", "reason": "reads only", "shownDigest": m.Data.Approval.ShownDigest,
	}})
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, r.gate+"/api/channels/"+r.channel+"/decisions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	id, at := "answer-"+m.Data.Approval.ID, strconv.FormatInt(time.Now().Unix(), 10)
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Webhook-Id", id)
	q.Header.Set("Webhook-Timestamp", at)
	q.Header.Set("Webhook-Signature", sign(r.answers, id, at, body))
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	if decided := res.StatusCode == http.StatusOK || res.StatusCode == http.StatusConflict || res.StatusCode == http.StatusGone; !decided {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return fmt.Errorf("the gate answered %s: %s", res.Status, text)
	}
	return nil
}
