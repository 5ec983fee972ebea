package config

import (
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// A Channel notifies approvers, besides the inbox.
type Channel struct {
	Name     string
	Kind     string // the name of its [ChannelKind]
	Settings Section
	Summary  string // daily, or "" for no summary of calls
}

// A ChannelKind is a kind of channel, such as slack. The package of the channel declares
// the kind and its settings.
type ChannelKind struct {
	Name    string         // the key of its settings
	New     func() Section // returns the default settings
	Reports bool           // its channels can send a summary of calls
}

// A Section has the settings of a channel kind, which its package declares.
type Section interface {
	// Settings returns settings that store into the section.
	Settings() Group

	// Check checks the settings together.
	Check(c *Check)
}

// inboxChannel is the name of the channel that every workflow has.
const inboxChannel = "inbox"

func channels(p *[]Channel, kinds []ChannelKind) Dict {
	return func(key string) (Setting, string) {
		if !IsName(key) || key == inboxChannel {
			return nil, "must be at most 63 lower-case letters, digits and hyphens, and not inbox"
		}
		*p = append(*p, Channel{Name: key})
		c := &(*p)[len(*p)-1]
		g := Group{{"summary", Optional(OneOf(&c.Summary, "daily"))}}
		for _, k := range kinds {
			g = append(g, Entry{k.Name, section(func() Group {
				c.Kind, c.Settings = k.Name, k.New()
				return c.Settings.Settings()
			})})
		}
		return g, ""
	}
}

// checkChannels checks each channel, and the channels that workflows name.
func (l *loader) checkChannels() {
	names := []string{inboxChannel}
	for i, c := range l.cfg.Channels {
		names = append(names, c.Name)
		l.checkChannel(c, l.cfg.Channels[:i])
	}
	for _, w := range l.cfg.Workflows {
		for i, name := range w.Channels {
			at := fmt.Sprintf("workflows.%s.channels[%d]", w.Name, i)
			if !slices.Contains(names, name) && !l.faulty(at) {
				l.reject(at, fmt.Sprintf("no channel %q: there are %s", name, strings.Join(names, ", ")))
			}
		}
	}
}

func (l *loader) checkChannel(c Channel, earlier []Channel) {
	at := "channels." + c.Name
	var kinds []string
	given := 0
	for _, k := range l.kinds {
		kinds = append(kinds, k.Name)
		if l.given(at + "." + k.Name) {
			given++
			if c.Summary != "" && !k.Reports {
				l.reject(at+".summary", "a "+k.Name+" channel sends no summary")
			}
		}
	}
	if given != 1 {
		l.reject(at, "needs one kind: "+alternatives(kinds))
		return
	}
	if c.Settings != nil {
		c.Settings.Check(&Check{Channel: c.Name, Earlier: earlier, loader: l, at: at + "." + c.Kind})
	}
}

// A Check collects the problems of a [Section]. The keys of its methods are paths in the
// section, such as answers.secret.
type Check struct {
	Channel string    // the name of the channel
	Earlier []Channel // the channels before it

	loader *loader
	at     string
}

// Report reports a problem with a setting, or with the section if the key is empty.
func (c *Check) Report(key, text string) {
	at := strings.TrimSuffix(c.at+"."+key, ".")
	c.loader.reject(at, text)
}

// Faulty reports whether a setting has a problem.
func (c *Check) Faulty(key string) bool { return c.loader.faulty(c.at + "." + key) }

// Given reports whether a setting is given.
func (c *Check) Given(key string) bool { return c.loader.given(c.at + "." + key) }

// Workflows returns the workflows that use the channel.
func (c *Check) Workflows() []policy.Workflow {
	return slices.DeleteFunc(slices.Clone(c.loader.cfg.Workflows), func(w policy.Workflow) bool { return !slices.Contains(w.Channels, c.Channel) })
}

// WarnWorkflow warns of a setting of a workflow.
func (c *Check) WarnWorkflow(workflow, key, text string) {
	c.loader.warn("workflows."+workflow+"."+key, text)
}

// IsOperator reports whether a configured operator has the name.
func (c *Check) IsOperator(name string) bool {
	return strings.EqualFold(name, SingleOperator) ||
		slices.ContainsFunc(c.loader.cfg.Operators.Tokens, func(t Token) bool { return strings.EqualFold(t.Name, name) })
}

// AMailbox describes the texts that [IsMailbox] accepts.
const AMailbox = "an address such as ops@example.com or Ops <ops@example.com>"

// IsMailbox reports whether s is an ASCII e-mail address, with or without a name.
func IsMailbox(s string) bool {
	a, err := mail.ParseAddress(s)
	if err != nil || !IsLine(s) {
		return false
	}
	user, domain, _ := strings.Cut(a.Address, "@")
	return user != "" && only(user, letters+digits+"!#$%&'*+-/=?^_`{|}~.") && IsHost(domain)
}

// Revealed returns settings, secrets included, as a text for comparison. It must not be
// printed.
func Revealed(settings any) (string, error) {
	text, err := json.Marshal(settings, json.Deterministic(true), json.WithMarshalers(json.JoinMarshalers(
		json.MarshalToFunc(func(enc *jsontext.Encoder, s Secret) error { return enc.WriteToken(jsontext.String(s.Reveal())) }),
		json.MarshalToFunc(func(enc *jsontext.Encoder, d time.Duration) error { return enc.WriteToken(jsontext.Int(int64(d))) }),
	)))
	return string(text), err
}
