package webhook

import (
	"net/url"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// Kind is the kind of channel that posts questions to another system.
func Kind() config.ChannelKind {
	return config.ChannelKind{Name: "webhook", New: func() config.Section { return new(Settings) }}
}

// Settings are the settings of a webhook channel.
type Settings struct {
	URL          *url.URL
	Secret       config.Secret // signs questions
	AllowPrivate bool
	Answers      AnswerSettings
}

// AnswerSettings allow a system to decide.
type AnswerSettings struct {
	Secret   config.Secret // signs answers
	Approver string        // the name of the system as an approver; empty if it may not decide
}

// Settings implements [config.Section].
func (s *Settings) Settings() config.Group {
	return config.Group{
		{Key: "url", To: config.Required(config.URL(&s.URL))},
		{Key: "secret", To: config.Required(signingSecret(&s.Secret))},
		{Key: "allow_private", To: config.Bool(&s.AllowPrivate)},
		{Key: "answers", To: config.Group{
			{Key: "secret", To: config.Required(signingSecret(&s.Answers.Secret))},
			{Key: "approver", To: config.Required(config.Read(&s.Answers.Approver, "a name on one line", func(s string) (string, bool) { return s, config.IsWord(s) }))},
		}},
	}
}

// signingSecret reads a secret in the form of Standard Webhooks.
func signingSecret(p *config.Secret) config.Leaf {
	return config.Read(p, wantKey, func(s string) (config.Secret, bool) {
		_, err := ParseKey(s)
		return config.NewSecret(s), err == nil
	})
}

// Check implements [config.Section].
func (s *Settings) Check(c *config.Check) {
	if !c.Given("answers") {
		return
	}
	if secret := s.Answers.Secret.Reveal(); secret != "" && secret == s.Secret.Reveal() {
		c.Report("answers.secret", "must differ from the secret that signs questions")
	}
	if c.IsOperator(s.Answers.Approver) {
		c.Report("answers.approver", "is the name of an operator")
	}
}

// timeout limits one request to the receiver.
const timeout = 10 * time.Second

// Open implements [channel.Settings].
func (s *Settings) Open(g channel.Gate, _ []channel.Channel) (channel.Channel, error) {
	key, err := ParseKey(s.Secret.Reveal())
	if err != nil {
		return nil, err
	}
	c := Config{Name: g.Channel, URL: s.URL, Key: key, Private: s.AllowPrivate, Timeout: timeout, Now: g.Now}
	if s.Answers.Approver == "" {
		return New(c), nil
	}
	c.AnswerKey, err = ParseKey(s.Answers.Secret.Reveal())
	c.Approver = approval.Approver{Name: s.Answers.Approver, Roles: []string{"approver"}}
	return New(c), err
}
