package push

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// Kind is the kind of channel that sends notifications to the browsers of approvers.
func Kind() config.ChannelKind {
	return config.ChannelKind{Name: "push", New: func() config.Section { return new(Settings) }}
}

// Settings are the settings of a push channel.
type Settings struct {
	Contact      string
	AllowPrivate bool
}

// Settings implements [config.Section].
func (s *Settings) Settings() config.Group {
	return config.Group{
		{Key: "contact", To: config.Required(config.Read(&s.Contact, "mailto: and an address, or a URL with https", func(s string) (string, bool) { return s, isContact(s) }))},
		{Key: "allow_private", To: config.Bool(&s.AllowPrivate)},
	}
}

// isContact reports whether s is a mailto: or https: URL.
func isContact(s string) bool {
	if address, ok := strings.CutPrefix(s, "mailto:"); ok {
		return config.IsMailbox(address) && !strings.ContainsAny(address, " <")
	}
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https" && config.HasHost(u) && config.IsLine(s)
}

// Check implements [config.Section]. It reports a second channel of this kind, since
// browsers subscribe to the gate and would receive everything twice.
func (s *Settings) Check(c *config.Check) {
	for _, earlier := range c.Earlier {
		if other, ok := earlier.Settings.(*Settings); ok && other.Contact != "" {
			c.Report("", fmt.Sprintf("only one push channel is allowed, and %q is one", earlier.Name))
			return
		}
	}
}

// timeout limits one request to a push service.
const timeout = 10 * time.Second

// Open implements [channel.Settings].
func (s *Settings) Open(g channel.Gate, _ []channel.Channel) (channel.Channel, error) {
	return New(Config{
		Records: g.Records, Client: webhook.NewClient(webhook.ClientConfig{Timeout: timeout, Private: s.AllowPrivate}), Contact: s.Contact,
		FindOperator: g.FindOperator, MayDecide: g.MayDecide, Now: g.Now, Log: g.Log,
	}), nil
}
