package config

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A Channel is a way to ask people, besides the inbox. It has one kind.
type Channel struct {
	Name    string
	Webhook Webhook
	Slack   Slack
	Email   Email
	Push    Push
}

// A Push sends notifications to the browsers of approvers.
type Push struct {
	Contact      string // empty if the channel is of another kind
	AllowPrivate bool
}

// A Slack posts questions to a channel of Slack.
type Slack struct {
	BotToken Secret // empty if the channel is of another kind
	AppToken Secret
	Channel  string            // its id
	People   map[string]string // names of approvers by ids of users
	Groups   map[string]string // names of groups by ids of user groups
	URL      *url.URL          // of the API, if it is not Slack's
}

// A Webhook posts questions to another system.
type Webhook struct {
	URL          *url.URL // nil if the channel is of another kind
	Secret       Secret   // signs what is posted
	AllowPrivate bool
	Timeout      time.Duration
	Answers      Answers
}

// Answers says as whom a system may decide, if it may.
type Answers struct {
	Secret   Secret // signs what the system posts
	Approver string // its name; empty if it may not decide
	Groups   []string
}

// inboxChannel is the channel that every workflow has.
const inboxChannel = "inbox"

func channels(p *[]Channel) dict {
	return dict{func(key string) (setting, string) {
		if !isName(key) || key == inboxChannel {
			return nil, "must be at most 63 lower-case letters, digits and hyphens, and not inbox"
		}
		*p = append(*p, Channel{Name: key, Webhook: Webhook{Timeout: 10 * time.Second}, Email: Email{Security: "starttls", Timeout: 15 * time.Second}})
		return (*p)[len(*p)-1].settings(), ""
	}}
}

func (c *Channel) settings() group {
	return group{
		{"webhook", group{
			{"url", required{endpoint(&c.Webhook.URL)}},
			{"secret", required{signingSecret(&c.Webhook.Secret)}},
			{"allow_private", boolean(&c.Webhook.AllowPrivate)},
			{"timeout", duration(&c.Webhook.Timeout, time.Second)},
			{"answers", group{
				{"secret", required{signingSecret(&c.Webhook.Answers.Secret)}},
				{"approver", required{who(&c.Webhook.Answers.Approver)}},
				{"groups", list{func() setting { return each(&c.Webhook.Answers.Groups, "the name of a group", isWord) }}},
			}},
		}},
		{"slack", group{
			{"bot_token", required{bearer(&c.Slack.BotToken)}},
			{"app_token", required{bearer(&c.Slack.AppToken)}},
			{"channel", required{slackID(&c.Slack.Channel, "C", "G", "D")}},
			{"people", slackNames(&c.Slack.People, "U", "W")},
			{"groups", slackNames(&c.Slack.Groups, "S")},
			{"url", optional(endpoint(&c.Slack.URL))},
		}},
		{"email", c.Email.settings()},
		{"push", group{
			{"contact", required{contact(&c.Push.Contact)}},
			{"allow_private", boolean(&c.Push.AllowPrivate)},
		}},
	}
}

// slackID is the id that Slack has given to something of a kind.
func slackID(p *string, kinds ...string) leaf {
	return read(p, isText, "an id of Slack that begins with "+strings.Join(kinds, " or "), func(s string) (string, bool) { return s, isSlackID(s, kinds) })
}

func isSlackID(s string, kinds []string) bool {
	return len(s) > 1 && only(s, strings.ToUpper(lower)+digits) && slices.Contains(kinds, s[:1])
}

// slackNames is a mapping of ids to names.
func slackNames(p *map[string]string, kinds ...string) dict {
	return dict{func(key string) (setting, string) {
		name := read(new(string), isText, "a name", func(s string) (string, bool) {
			if *p == nil {
				*p = map[string]string{}
			}
			(*p)[key] = s
			return s, isWord(s)
		})
		if !isSlackID(key, kinds) {
			return name, "must be an id of Slack that begins with " + strings.Join(kinds, " or ")
		}
		return name, ""
	}}
}

// signingSecret is a secret as Standard Webhooks writes it.
func signingSecret(p *Secret) leaf {
	return read(p, isText, "whsec_ followed by 24 to 64 random bytes in base64", func(s string) (Secret, bool) {
		text, ok := strings.CutPrefix(s, "whsec_")
		key, err := base64.StdEncoding.DecodeString(text)
		return NewSecret(s), ok && err == nil && len(key) >= 24 && len(key) <= 64
	})
}

// checkChannels reports channels without a kind, systems that share the name of an
// operator, and workflows that name a channel which is not there.
func (l *loader) checkChannels() {
	names := []string{inboxChannel}
	for i := range l.cfg.Channels {
		c := &l.cfg.Channels[i]
		names = append(names, c.Name)
		l.checkChannel("channels."+c.Name, c)
	}
	for _, w := range l.cfg.Workflows {
		for i, name := range w.Channels {
			at := fmt.Sprintf("workflows.%s.channels[%d]", w.Name, i)
			if !slices.Contains(names, name) && !l.faulty(at) {
				l.report(l.origin(at), at, fmt.Sprintf("no channel %q: there are %s", name, strings.Join(names, ", ")))
			}
		}
		l.warnOfAddresses(w)
	}
}

// warnOfAddresses warns of a workflow for which one person may count as two: Slack knows
// the members of user groups by an e-mail address that they may be able to change.
func (l *loader) warnOfAddresses(w Workflow) {
	for i := range l.cfg.Channels {
		c := &l.cfg.Channels[i]
		if w.Quorum < 2 || len(c.Slack.Groups) == 0 || !slices.Contains(w.Channels, c.Name) {
			continue
		}
		at := "workflows." + w.Name + ".quorum"
		l.warnings = append(l.warnings, Problem{l.origin(at), at, "a person who changes the e-mail address of their Slack profile may count twice: " +
			"name those who may approve in channels." + c.Name + ".slack.people, as they sign in, and remove groups"})
	}
}

func (l *loader) checkChannel(at string, c *Channel) {
	given := slices.DeleteFunc([]string{"webhook", "slack", "email", "push"}, func(kind string) bool { return !l.given(at + "." + kind) })
	if len(given) != 1 {
		l.report(l.origin(at), at, "needs one kind: webhook, slack, email or push")
		return
	}
	switch given[0] {
	case "webhook":
		l.checkWebhook(at, c)
	case "email":
		l.checkEmail(at+".email", c.Email)
	case "push":
		l.checkPush(at+".push", c)
	default:
		l.checkSlack(at+".slack", c)
	}
}

// checkSlack reports channels whose clicks could not be told apart, and apps with several
// tokens: Slack sends each click to any one of the connections of an app, and the gate has
// one for each token.
func (l *loader) checkSlack(at string, c *Channel) {
	bot, app := c.Slack.BotToken.Reveal(), c.Slack.AppToken.Reveal()
	l.need(at, "bot_token", bot)
	l.need(at, "app_token", app)
	l.need(at, "channel", c.Slack.Channel)
	if bot == "" || app == "" || c.Slack.Channel == "" {
		return
	}
	for i := range l.cfg.Channels {
		other := &l.cfg.Channels[i]
		sameBot, sameApp := other.Slack.BotToken.Reveal() == bot, other.Slack.AppToken.Reveal() == app
		switch {
		case other == c:
			return
		case sameApp && other.Slack.Channel == c.Slack.Channel:
			l.report(l.origin(at+".channel"), at+".channel", fmt.Sprintf("is the one of %q: give %q the people of both, and name it in the workflows of both", other.Name, other.Name))
			return
		case sameBot && !sameApp:
			l.report(l.origin(at+".app_token"), at+".app_token", fmt.Sprintf("must be that of %q, which is the same app: it has the same bot_token", other.Name))
			return
		}
	}
}

func (l *loader) checkWebhook(at string, c *Channel) {
	hook := &c.Webhook
	if hook.URL == nil && !l.faulty(at+".webhook.url") {
		l.report(l.origin(at+".webhook"), at+".webhook.url", "is required")
	}
	l.need(at+".webhook", "secret", hook.Secret.Reveal())
	if !l.given(at + ".webhook.answers") {
		return
	}
	l.need(at+".webhook.answers", "secret", hook.Answers.Secret.Reveal())
	l.need(at+".webhook.answers", "approver", hook.Answers.Approver)
	if secret := hook.Answers.Secret.Reveal(); secret != "" && secret == hook.Secret.Reveal() {
		l.report(l.origin(at+".webhook.answers.secret"), at+".webhook.answers.secret", "must differ from the secret that signs questions")
	}
	l.checkSystemName(at+".webhook.answers.approver", hook.Answers.Approver)
}

// checkPush reports a second channel of its kind: browsers subscribe to the gate, and
// would be sent everything twice.
func (l *loader) checkPush(at string, c *Channel) {
	l.need(at, "contact", c.Push.Contact)
	for i := range l.cfg.Channels {
		other := &l.cfg.Channels[i]
		if other == c {
			return
		}
		if other.Push.Contact != "" {
			l.report(l.origin(at), at, fmt.Sprintf("there can be one channel of this kind, and %q is one", other.Name))
			return
		}
	}
}

// contact is whom the operators of a push service can ask about the gate.
func contact(p *string) leaf {
	return read(p, isText, "mailto: and an address, or a URL with https", func(s string) (string, bool) {
		if address, ok := strings.CutPrefix(s, "mailto:"); ok {
			return s, isMailbox(address) && !strings.ContainsAny(address, " <")
		}
		u, err := url.Parse(s)
		return s, err == nil && u.Scheme == "https" && hasHost(u) && isLine(s)
	})
}

// checkSystemName refuses the name of a person for a system: the two would count as
// one approver.
func (l *loader) checkSystemName(at, name string) {
	taken := strings.EqualFold(name, SingleOperator)
	for _, t := range l.cfg.Operators.Tokens {
		taken = taken || strings.EqualFold(t.Name, name)
	}
	if taken {
		l.report(l.origin(at), at, "is the name of an operator")
	}
}
