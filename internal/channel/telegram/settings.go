package telegram

import (
	"net/url"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// Kind is the kind of channel that posts questions to a chat of Telegram.
func Kind() config.ChannelKind {
	return config.ChannelKind{Name: "telegram", New: func() config.Section { return new(Settings) }, Reports: true}
}

// Settings are the settings of a Telegram channel.
type Settings struct {
	BotToken config.Secret
	Chat     string            // its id
	People   map[string]string // names of approvers, by ids of users
	URL      *url.URL          // of the API; nil means Telegram's
}

// Settings implements [config.Section].
func (s *Settings) Settings() config.Group {
	const wantChat = "the id of a chat, which is a number and may begin with a hyphen"
	return config.Group{
		{Key: "bot_token", To: config.Required(config.Bearer(&s.BotToken))},
		{Key: "chat", To: config.Required(config.Read(&s.Chat, wantChat, func(id string) (string, bool) {
			return id, channel.IsNumber(strings.TrimPrefix(id, "-"))
		}))},
		{Key: "people", To: channel.People(&s.People, "the id of a user, which is a number", channel.IsNumber)},
		{Key: "url", To: config.Optional(config.URL(&s.URL))},
	}
}

// Check implements [config.Section]. Telegram sends what happens to a bot to one URL.
func (s *Settings) Check(c *config.Check) {
	for _, earlier := range c.Earlier {
		if other, ok := earlier.Settings.(*Settings); ok && s.BotToken.Reveal() != "" && s.BotToken.Reveal() == other.BotToken.Reveal() {
			c.Report("bot_token", "is that of "+earlier.Name+": each channel needs a bot of its own")
		}
	}
}

// Open implements [channel.Settings].
func (s *Settings) Open(g channel.Gate, _ []channel.Channel) (channel.Channel, error) {
	return &Telegram{s, g, webhook.NewAPI("Telegram", "https://api.telegram.org", s.URL, nil)}, nil
}
