package slack

import (
	"sync"

	"github.com/slack-go/slack"
)

// Apps makes the channels of a gate. The zero value is ready for use.
type Apps struct {
	known map[appKey]*app
}

// An appKey tells apps apart.
type appKey struct{ url, token string }

// Channel returns a channel. Channels with the same app token share one connection: Slack
// sends each click to any one of the connections of an app.
func (a *Apps) Channel(c Config) *Slack {
	options := []slack.Option{slack.OptionAppLevelToken(c.AppToken)}
	if c.URL != "" {
		options = append(options, slack.OptionAPIURL(c.URL))
	}
	api := slack.New(c.BotToken, options...)
	s := &Slack{cfg: c, api: api, people: &people{names: c.People, teams: c.Groups, now: c.Now, api: api, members: map[string]membership{}}}
	s.app = a.app(appKey{c.URL, c.AppToken})
	s.app.channels = append(s.app.channels, s)
	return s
}

func (a *Apps) app(key appKey) *app {
	if a.known == nil {
		a.known = map[appKey]*app{}
	}
	if a.known[key] == nil {
		a.known[key] = &app{reports: map[*Slack]func(error){}}
	}
	return a.known[key]
}

// An app is an app in Slack, with the channels of the gate that use it. The first of them
// takes the clicks of all.
type app struct {
	channels []*Slack

	mu      sync.Mutex
	reports map[*Slack]func(error) // of the channels that run
	known   bool                   // whether clicks arrive is known
	trouble error                  // why they do not; nil if they do
}

// listener returns the channel that takes the clicks of all.
func (a *app) listener() *Slack { return a.channels[0] }

// channel returns the channel of the gate with an id of Slack, or nil.
func (a *app) channel(id string) *Slack {
	for _, s := range a.channels {
		if s.cfg.Channel == id {
			return s
		}
	}
	return nil
}

// join has a channel be told whether clicks arrive.
func (a *app) join(s *Slack, report func(error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reports[s] = report
	if a.known {
		report(a.trouble)
	}
}

// leave ends what join began.
func (a *app) leave(s *Slack) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.reports, s)
	if s == a.listener() {
		a.known, a.trouble = false, nil
	}
}

// report tells all channels whether clicks arrive.
func (a *app) report(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known, a.trouble = true, err
	for _, report := range a.reports {
		report(err)
	}
}

// report tells one channel whether the clicks of people there can count.
func (s *Slack) report(err error) {
	s.app.mu.Lock()
	defer s.app.mu.Unlock()
	if report := s.app.reports[s]; report != nil {
		report(err)
	}
}
