// Package pagerduty is a channel that opens an incident of PagerDuty for each question, with
// a link to the inbox, and resolves it when the call is decided or ends. Nobody decides in
// PagerDuty.
package pagerduty

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

// Kind is the kind of channel that opens incidents of PagerDuty.
func Kind() config.ChannelKind {
	return config.ChannelKind{Name: "pagerduty", New: func() config.Section { return new(Settings) }}
}

// Settings are the settings of a PagerDuty channel.
type Settings struct {
	RoutingKey config.Secret
	URL        *url.URL // to which events are sent; nil means PagerDuty's in the USA
}

// Settings implements [config.Section].
func (s *Settings) Settings() config.Group {
	return config.Group{
		{Key: "routing_key", To: config.Required(config.Bearer(&s.RoutingKey))},
		{Key: "url", To: config.Optional(config.URL(&s.URL))},
	}
}

// Check implements [config.Section].
func (*Settings) Check(*config.Check) {}

// Open implements [channel.Settings].
func (s *Settings) Open(_ channel.Gate, _ []channel.Channel) (channel.Channel, error) {
	return &PagerDuty{webhook.NewAPI("PagerDuty", "https://events.pagerduty.com/v2/enqueue", s.URL, nil), s.RoutingKey.Reveal()}, nil
}

// A PagerDuty is a channel of PagerDuty.
type PagerDuty struct {
	api *webhook.API
	key string
}

// An event is the body of a request: Events API v2. Events with the same key are about the
// same incident, so that a repeated event has no effect.
type event struct {
	RoutingKey string   `json:"routing_key"`
	Action     string   `json:"event_action"`
	Key        string   `json:"dedup_key"`
	Client     string   `json:"client,omitzero"`
	ClientURL  string   `json:"client_url,omitzero"`
	Payload    *payload `json:"payload,omitzero"`
	Links      []link   `json:"links,omitzero"`
}

// The actions of events.
const (
	trigger = "trigger"
	resolve = "resolve"
)

type payload struct {
	Summary   string  `json:"summary"`
	Source    string  `json:"source"`
	Severity  string  `json:"severity"`
	Component string  `json:"component,omitzero"`
	Details   details `json:"custom_details"`
}

// details are facts about a call, without arguments.
type details struct {
	Tool        string `json:"tool"`
	RequestedBy string `json:"requested by"`
	Server      string `json:"server"`
	HeldBecause string `json:"held because"`
	Risk        string `json:"risk"`
	DecideBy    string `json:"decide before"`
}

type link struct {
	URL  string `json:"href"`
	Text string `json:"text"`
}

const (
	maxSummary = 1024
	maxDetail  = 300
)

// severities are the severities of incidents by the risk of the call.
var severities = map[review.Risk]string{review.RiskDestroys: "critical", review.RiskReads: "info"}

// Ask implements [channel.Channel].
func (p *PagerDuty) Ask(ctx context.Context, q channel.Question) (string, error) {
	return "", p.send(ctx, p.triggered(q, q.Summary(maxSummary)))
}

// Remind implements [channel.Channel]. The reminder is added to the log of the incident, and
// opens it again if somebody has resolved it in PagerDuty.
func (p *PagerDuty) Remind(ctx context.Context, _ string, q channel.Question) error {
	return p.send(ctx, p.triggered(q, channel.Cut(q.ReminderText(maxDetail), maxSummary)))
}

// Update implements [channel.Channel]. Once a call is decided, nothing is left to do.
func (p *PagerDuty) Update(ctx context.Context, _ string, q channel.Question) error {
	return p.send(ctx, event{RoutingKey: p.key, Action: resolve, Key: string(q.Approval.ID)})
}

// Address implements [channel.Channel].
func (p *PagerDuty) Address() string { return p.api.URL + p.key }

// Close implements [channel.Closer].
func (p *PagerDuty) Close() { p.api.Close() }

// triggered returns the event that opens the incident of a question.
func (p *PagerDuty) triggered(q channel.Question, summary string) event {
	a := q.Approval
	short := func(text string) string { return channel.Cut(text, maxDetail) }
	severity := severities[a.Risk]
	if severity == "" {
		severity = "warning"
	}
	return event{
		RoutingKey: p.key, Action: trigger, Key: string(a.ID), Client: "ThoughtGate", ClientURL: q.Page, Links: []link{{q.Page, "Decide in the inbox"}},
		Payload: &payload{Summary: summary, Source: "ThoughtGate", Severity: severity, Component: short(a.Upstream), Details: details{
			Tool: short(a.Tool), RequestedBy: short(a.Principal), Server: short(a.Upstream), HeldBecause: short(a.Reason),
			Risk: string(a.Risk), DecideBy: a.ExpiresAt.UTC().Format(time.RFC3339),
		}},
	}
}

// send sends an event.
func (p *PagerDuty) send(ctx context.Context, e event) error {
	answer, err := p.api.Exchange(ctx, http.MethodPost, "", e)
	if err == nil {
		return nil
	}
	var said struct {
		Message string   `json:"message"`
		Errors  []string `json:"errors"`
	}
	_ = json.Unmarshal(answer, &said) // only to explain the error
	return webhook.Advise(err, strings.Join(append([]string{said.Message}, said.Errors...), " "))
}
