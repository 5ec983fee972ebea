package slack

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// Kind is the kind of channel that posts questions to a channel of Slack.
func Kind() config.ChannelKind {
	return config.ChannelKind{Name: "slack", New: func() config.Section { return new(Settings) }, Reports: true}
}

// Settings are the settings of a Slack channel.
type Settings struct {
	BotToken config.Secret
	AppToken config.Secret
	Channel  string            // see Config
	People   map[string]string // see Config
	Groups   map[string]string // see Config
	URL      *url.URL          // of the API; nil means Slack's
}

// Settings implements [config.Section].
func (s *Settings) Settings() config.Group {
	return config.Group{
		{Key: "bot_token", To: config.Required(config.Bearer(&s.BotToken))},
		{Key: "app_token", To: config.Required(config.Bearer(&s.AppToken))},
		{Key: "channel", To: config.Required(config.Read(&s.Channel, wantID("C", "G", "D"), func(s string) (string, bool) { return s, isID(s, "C", "G", "D") }))},
		{Key: "people", To: namesByID(&s.People, "U", "W")},
		{Key: "groups", To: namesByID(&s.Groups, "S")},
		{Key: "url", To: config.Optional(config.URL(&s.URL))},
	}
}

// wantID describes the ids of some kinds of Slack objects.
func wantID(kinds ...string) string {
	return "an id of Slack that begins with " + strings.Join(kinds, " or ")
}

func isID(s string, kinds ...string) bool {
	return len(s) > 1 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == "" && slices.Contains(kinds, s[:1])
}

// namesByID reads a mapping from ids to names.
func namesByID(p *map[string]string, kinds ...string) config.Setting {
	return channel.People(p, wantID(kinds...), func(id string) bool { return isID(id, kinds...) })
}

// Check implements [config.Section]. It reports two channels with the same app and the same
// Slack channel, and two app tokens of the same app: the gate has a connection for each
// token, and Slack sends each click to any one of them.
func (s *Settings) Check(c *config.Check) {
	s.warnOfAddresses(c)
	bot, app := s.BotToken.Reveal(), s.AppToken.Reveal()
	if bot == "" || app == "" || s.Channel == "" {
		return
	}
	for _, earlier := range c.Earlier {
		other, ok := earlier.Settings.(*Settings)
		if !ok {
			continue
		}
		sameBot, sameApp := other.BotToken.Reveal() == bot, other.AppToken.Reveal() == app
		switch {
		case sameApp && other.Channel == s.Channel:
			c.Report("channel", fmt.Sprintf("is the one of %q: give %q the people of both, and name it in the workflows of both", earlier.Name, earlier.Name))
			return
		case sameBot && !sameApp:
			c.Report("app_token", fmt.Sprintf("must be that of %q, which is the same app: it has the same bot_token", earlier.Name))
			return
		}
	}
}

// warnOfAddresses warns about workflows in which one person may count twice: members of user
// groups are identified by their e-mail address, and may be able to change it.
func (s *Settings) warnOfAddresses(c *config.Check) {
	for _, w := range c.Workflows() {
		if w.Quorum >= 2 && len(s.Groups) > 0 {
			c.WarnWorkflow(w.Name, "quorum", "a person who changes the e-mail address of their Slack profile may count twice: "+
				"name those who may approve in channels."+c.Channel+".slack.people, as they sign in, and remove groups")
		}
	}
}

// Open implements [channel.Settings].
func (s *Settings) Open(g channel.Gate, earlier []channel.Channel) (channel.Channel, error) {
	c := Config{
		Name: g.Channel, BotToken: s.BotToken.Reveal(), AppToken: s.AppToken.Reveal(), Channel: s.Channel, People: s.People, Groups: s.Groups,
		Decide: g.Decide, Explain: g.Explain, Now: g.Now, Log: g.Log,
	}
	if s.URL != nil {
		c.URL = strings.TrimSuffix(s.URL.String(), "/") + "/"
	}
	return New(c, earlier...), nil
}
