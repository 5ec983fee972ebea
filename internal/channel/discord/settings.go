package discord

import (
	"crypto/ed25519"
	"encoding/hex"
	"net/http"
	"net/url"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// Kind is the kind of channel that posts questions to a channel of Discord.
func Kind() config.ChannelKind {
	return config.ChannelKind{Name: "discord", New: func() config.Section { return new(Settings) }, Reports: true}
}

// Settings are the settings of a Discord channel.
type Settings struct {
	BotToken  config.Secret
	PublicKey ed25519.PublicKey // of the application
	Channel   string            // the id of the channel in Discord
	People    map[string]string // names of approvers, by ids of users
	URL       *url.URL          // of the API; nil means Discord's
}

// Settings implements [config.Section].
func (s *Settings) Settings() config.Group {
	return config.Group{
		{Key: "bot_token", To: config.Required(config.Bearer(&s.BotToken))},
		{Key: "public_key", To: config.Required(config.Read(&s.PublicKey, "64 hexadecimal digits", func(text string) (ed25519.PublicKey, bool) {
			key, err := hex.DecodeString(text)
			return key, err == nil && len(key) == ed25519.PublicKeySize
		}))},
		{Key: "channel", To: config.Required(config.Read(&s.Channel, wantID, func(id string) (string, bool) { return id, channel.IsNumber(id) }))},
		{Key: "people", To: channel.People(&s.People, wantID, channel.IsNumber)},
		{Key: "url", To: config.Optional(config.URL(&s.URL))},
	}
}

// wantID describes ids of Discord.
const wantID = "an id of Discord, which is a number"

// Check implements [config.Section]. Discord sends the clicks of an application to one URL.
func (s *Settings) Check(c *config.Check) {
	for _, earlier := range c.Earlier {
		if other, ok := earlier.Settings.(*Settings); ok && s.PublicKey != nil && s.PublicKey.Equal(other.PublicKey) {
			c.Report("public_key", "is that of "+earlier.Name+": each channel needs an application of its own")
		}
	}
}

// Open implements [channel.Settings].
func (s *Settings) Open(g channel.Gate, _ []channel.Channel) (channel.Channel, error) {
	header := http.Header{"Authorization": {"Bot " + s.BotToken.Reveal()}}
	return &Discord{s, g, webhook.NewAPI("Discord", "https://discord.com/api/v10", s.URL, header)}, nil
}
