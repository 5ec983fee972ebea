package pagerduty_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/chattest"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/pagerduty"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "R0UT1NGKEY"

// An event is a request to the Events API v2.
type event struct {
	Key     string `json:"routing_key"`
	Action  string `json:"event_action"`
	Dedup   string `json:"dedup_key"`
	Payload *struct{ Summary, Source, Severity string }
	Links   []struct{ Href, Text string }
}

// execute applies an event, as PagerDuty does: each incident is a message.
func execute(t *testing.T) func(s *chattest.Service, w http.ResponseWriter, r *http.Request, text []byte) {
	t.Helper()
	incidents := map[string]int{}
	return func(s *chattest.Service, w http.ResponseWriter, _ *http.Request, text []byte) {
		var e event
		if err := json.Unmarshal(text, &e); err != nil || e.Key != key || e.Dedup == "" || len(e.Dedup) > 255 || len(text) > 512<<10 {
			t.Errorf("%v: %s", err, text)
		}
		m := chattest.Message{Text: e.Action}
		switch e.Action {
		case "trigger":
			p := e.Payload
			if p == nil || p.Summary == "" || len([]rune(p.Summary)) > 1024 || p.Source == "" || !slices.Contains([]string{"critical", "error", "warning", "info"}, p.Severity) {
				t.Errorf("payload of %s", text)
			}
			m = chattest.Message{Text: "trigger " + p.Severity + " " + p.Summary + " " + string(text), Buttons: map[string]string{e.Links[0].Text: e.Links[0].Href}}
		case "resolve":
		default:
			t.Errorf("action %s", e.Action)
		}
		if n := incidents[e.Dedup]; n > 0 {
			s.Edit(n, m)
		} else {
			incidents[e.Dedup] = s.Add(m)
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"status":"success","message":"Event processed","dedup_key":%q}`, e.Dedup)
	}
}

func open(t *testing.T, service *chattest.Service) channel.Channel {
	t.Helper()
	address, err := url.Parse(service.URL + "/v2/enqueue")
	if err != nil {
		t.Fatal(err)
	}
	c, err := (&pagerduty.Settings{RoutingKey: config.NewSecret(key), URL: address}).Open(channel.Gate{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestIncidents checks that an incident is opened once, although an answer is lost after a
// rate limit, and resolved.
func TestIncidents(t *testing.T) {
	gate := chattest.NewGate(t)
	service := chattest.NewService(t, execute(t))
	service.Next(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	service.Next(nil)
	start := time.Now()
	stop := gate.Run(open(t, service))
	id := gate.HoldTool("delete_"+strings.Repeat("é", 900), `{"path":"/secret"}`)
	m := service.Last(1)
	if time.Since(start) < time.Second {
		t.Error("the event was sent again at once")
	}
	if !strings.Contains(m.Text, "trigger warning Approval needed: delete_é") || !strings.Contains(m.Text, " for ann") && !strings.Contains(m.Text, `"requested by":"ann"`) ||
		strings.Contains(m.Text, "/secret") || m.Buttons["Decide in the inbox"] != "https://gate.example.com/approvals/"+string(id) {
		t.Errorf("incident %+v", m)
	}
	stop()
	gate.Reject(id)
	gate.Run(open(t, service))
	service.Says("resolve")
	service.Last(1)
}

// TestRefusedEvent checks that the error tells what PagerDuty said, without the key.
func TestRefusedEvent(t *testing.T) {
	service := chattest.NewService(t, nil)
	service.Next(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"status":"invalid event","message":"Event object is invalid","errors":["Invalid routing key"]}`)
	})
	c := open(t, service)
	defer c.(channel.Closer).Close()
	_, err := c.Ask(t.Context(), channel.Question{Stage: channel.Pending})
	if unsent := new(channel.NotSentError); !errors.As(err, &unsent) || !strings.Contains(err.Error(), "Event object is invalid Invalid routing key") || strings.Contains(err.Error(), key) {
		t.Errorf("error %v", err)
	}
}
