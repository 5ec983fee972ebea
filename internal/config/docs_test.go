package config_test

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/docs"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/doctest"
)

const configurationPage = "../../docs/configuration.md"

func readDocs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(configurationPage)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const someChannel = "channels: {c: {webhook: {url: https://c/, secret: whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz, "

const someHash = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

const somePublicKey = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"

// place returns a valid file in which the setting at path has the value, and the same file
// without the setting.
func place(path, value string) (with, without string) {
	path = strings.TrimSuffix(strings.TrimSuffix(path, ".*"), "[]")
	const start = "version: 1\nupstreams: [{url: https://a/}]\n"
	upstream := "version: 1\nupstreams: [{url: https://a/, "
	if slices.Contains([]string{"env", "dir", "shared", "max_processes"}, strings.TrimPrefix(path, "upstreams[].")) {
		upstream = "version: 1\nupstreams: [{command: [a], "
	}
	for _, inside := range []struct{ prefix, before, after string }{
		{"identity.tokens[].", start + "identity: {tokens: [{name: a, hash: '" + someHash + "', ", "}]}\n"},
		{"operators.tokens[].", start + "operators: {tokens: [{name: a, hash: '" + someHash + "', ", "}]}\n"},
		{"identity.jwt[].", start + "identity: {url: 'https://gate.example', jwt: [{issuer: 'https://i/', ", "}]}\n"},
		{"operators.oidc.", start + "operators: {url: 'https://g', oidc: {issuer: 'https://i/', client_id: c, roles: {admin: [a]}, ", "}}\n"},
		{"upstreams[].auth.oauth.", upstream + "auth: {oauth: {grant: shared, ", "}}}]\n"},
		{"upstreams[].", upstream, "}]\n"},
		{"endpoints[].servers[].", start + "endpoints: [{path: /x, servers: [{upstream: default, ", "}]}]\n"},
		{"endpoints[].", start + "endpoints: [{servers: [{upstream: default}], ", "}]\n"},
		{"rules[].", start + "default: deny\nrules: [{match: a, action: approve, ", "}]\n"},
		{"waiting.hosts[].", start + "waiting: {hosts: [{name: a, ", "}]}\n"},
		{"channels.*.email.", start + "channels: {c: {email: {server: 'a:25', from: a@b, to: [c@d], ", "}}}\n"},
		{"channels.*.push.", start + "channels: {c: {push: {contact: 'mailto:a@b', ", "}}}\n"},
		{"channels.*.discord.", start + "channels: {c: {discord: {bot_token: b, public_key: " + somePublicKey + ", channel: '1', ", "}}}\n"},
		{"channels.*.telegram.", start + "channels: {c: {telegram: {bot_token: b, chat: '-1', ", "}}}\n"},
		{"channels.*.teams.", start + "channels: {c: {teams: {", "}}}\n"},
		{"channels.*.pagerduty.", start + "channels: {c: {pagerduty: {routing_key: a, ", "}}}\n"},
		{"channels.*.slack.", start + "channels: {c: {slack: {bot_token: b, app_token: a, channel: C1, ", "}}}\n"},
		{"channels.*.webhook.answers.", start + someChannel + "answers: {secret: whsec_OTg3NjU0MzIxMDk4NzY1NDMyMTA5ODc2, approver: a, ", "}}}}\n"},
		{"channels.*.webhook.", start + someChannel, "}}}\n"},
		{"channels.*.", start + "channels: {c: {teams: {url: 'https://a/'}, ", "}}\n"},
		{"workflows.*.quiet_hours.", start + "workflows: {w: {escalate: {after: 1%, workflow: v}, quiet_hours: {from: '01:00', to: '02:00', ", "}}, v: {}}\n"},
		{"workflows.*.", start + "workflows: {w: {", "}}\n"},
	} {
		if inner, ok := strings.CutPrefix(path, inside.prefix); ok {
			return inside.before + nest(inner, value) + inside.after, inside.before + inside.after
		}
	}
	return start + nest(path, value) + "\n", start
}

func nest(path, value string) string {
	return strings.ReplaceAll(path, ".", ": {") + ": " + value + strings.Repeat("}", strings.Count(path, "."))
}

// withoutDefault are the settings with a default that a file cannot contain.
var withoutDefault = []string{
	"upstreams[].path", "endpoints[].path", "endpoints[].servers[].prefix", "upstreams[].url", "upstreams[].command[]", "upstreams[].auth.oauth.issuer", "identity.mtls.name", "identity.proxy.groups_header",
	"operators.oidc.roles.viewer[]", "operators.oidc.roles.rejecter[]", "operators.oidc.roles.approver[]", "operators.oidc.roles.admin[]",
	"rules[].principals[]", "rules[].secrets[]", "default",
}

const settingsFile = "../../docs/settings.txt"

// Each documented default, written into a file, makes no difference.
func TestDocsHaveEverySettingAndItsDefault(t *testing.T) {
	schema := compileSchema(t)
	keys := map[string]config.Key{}
	for _, key := range config.Keys(kinds...) {
		keys[key.Path] = key
	}
	for _, s := range docs.Settings() {
		key, ok := keys[s.Path]
		delete(keys, s.Path)
		switch {
		case !ok:
			dropSetting(t, s.Path)
		case s.Meaning == "":
			t.Errorf("%s: the docs lack its meaning", s.Path)
		case key.Required || slices.Contains(withoutDefault, s.Path):
		case s.Value() == "":
			t.Errorf("%s: the docs lack its default", s.Path)
		default:
			with, without := place(s.Path, s.Value())
			if diff := gocmp.Diff(valid(t, without), valid(t, with), revealed); diff != "" {
				t.Errorf("%s: the documented default %s is not the default:\n%s", s.Path, s.Default, diff)
			}
			accepts(t, schema, with)
		}
	}
	for path := range keys {
		t.Errorf("%s is not in %s", path, settingsFile)
	}
}

// dropSetting removes a former setting from the docs while they are being written.
func dropSetting(t *testing.T, path string) {
	t.Helper()
	if os.Getenv("WRITE_DOCS") == "" {
		t.Errorf("%s has %s, which is not a setting; run make generate", settingsFile, path)
		return
	}
	text, err := os.ReadFile(settingsFile)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("(?m)^(\\* )?" + regexp.QuoteMeta(path) + " \\|.*\n")
	if err := os.WriteFile(settingsFile, line.ReplaceAll(text, nil), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDocsAreGenerated generates the lists of configuration.md: the most used settings, then
// all others by group in the order of the code, and the variables.
func TestDocsAreGenerated(t *testing.T) {
	said := map[string]docs.Setting{}
	for _, s := range docs.Settings() {
		said[s.Path] = s
	}
	const topLevel = "top level"
	var common strings.Builder
	groups, byGroup := []string{topLevel}, map[string]string{}
	for _, key := range config.Keys(kinds...) {
		s := said[key.Path]
		about := strings.TrimPrefix(strings.TrimPrefix(key.Type, "list of "), "map of ")
		switch {
		case key.Required:
			about += ", required"
		case !slices.Contains([]string{"`\"\"`", "`[]`", "`{}`", "none"}, s.Default):
			about += ", " + s.Default
		}
		line := fmt.Sprintf("- `%s` (%s): %s\n", key.Path, about, s.Meaning)
		group, _, _ := strings.Cut(strings.ReplaceAll(key.Path, "[]", ""), ".")
		if group == strings.TrimSuffix(key.Path, "[]") {
			group = topLevel
		}
		switch {
		case s.Common:
			common.WriteString(line)
			continue
		case !slices.Contains(groups, group):
			groups = append(groups, group)
		}
		byGroup[group] += line
	}
	var reference strings.Builder
	for i, group := range groups {
		if i > 0 {
			reference.WriteString("\n")
		}
		reference.WriteString("### " + group + "\n\n" + byGroup[group])
	}
	var variables strings.Builder
	for _, v := range config.Variables() {
		fmt.Fprintf(&variables, "- `%s`: %s\n", v.Name, cmp.Or(v.Setting, "the configuration file, without `-c`"))
	}
	doctest.Generated(t, configurationPage, "common", common.String())
	doctest.Generated(t, configurationPage, "reference", reference.String())
	doctest.Generated(t, configurationPage, "variables", variables.String())
}

// Both the loader and the schema report each required setting that is missing.
func TestRequiredSettingsAreReported(t *testing.T) {
	schema := compileSchema(t)
	without := map[string]string{
		"version":                             "upstreams: [{url: https://a/}]",
		"rules[].match":                       "version: 1\nupstreams: [{url: https://a/}]\nrules: [{action: deny}]\ndefault: deny",
		"rules[].action":                      "version: 1\nupstreams: [{url: https://a/}]\nrules: [{match: a}]\ndefault: deny",
		"endpoints[].servers":                 "version: 1\nupstreams: [{url: https://a/}]\nendpoints: [{path: /x}]",
		"endpoints[].servers[].upstream":      "version: 1\nupstreams: [{url: https://a/}]\nendpoints: [{servers: [{prefix: a}]}]",
		"waiting.hosts[].name":                "version: 1\nupstreams: [{url: https://a/}]\nwaiting: {hosts: [{limit: none}]}",
		"identity.tokens[].name":              "version: 1\nupstreams: [{url: https://a/}]\nidentity: {tokens: [{hash: '" + someHash + "'}]}",
		"identity.tokens[].hash":              "version: 1\nupstreams: [{url: https://a/}]\nidentity: {tokens: [{name: a}]}",
		"operators.tokens[].name":             "version: 1\nupstreams: [{url: https://a/}]\noperators: {tokens: [{hash: '" + someHash + "'}]}",
		"operators.tokens[].hash":             "version: 1\nupstreams: [{url: https://a/}]\noperators: {tokens: [{name: a}]}",
		"identity.jwt[].issuer":               "version: 1\nupstreams: [{url: https://a/}]\nidentity: {jwt: [{audiences: [a]}]}",
		"upstreams[].auth.oauth.grant":        "version: 1\nupstreams: [{url: https://a/, auth: {oauth: {client_id: a}}}]",
		"identity.mtls.ca_file":               "version: 1\nupstreams: [{url: https://a/}]\nidentity: {mtls: {name: cn}}",
		"identity.proxy.from[]":               "version: 1\nupstreams: [{url: https://a/}]\nidentity: {proxy: {header: X-User}}",
		"identity.proxy.header":               "version: 1\nupstreams: [{url: https://a/}]\nidentity: {proxy: {from: [10.0.0.7]}}",
		"channels.*.slack.bot_token":          "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {slack: {app_token: a, channel: C1}}}",
		"channels.*.slack.app_token":          "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {slack: {bot_token: a, channel: C1}}}",
		"channels.*.slack.channel":            "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {slack: {bot_token: a, app_token: a}}}",
		"channels.*.discord.bot_token":        "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {discord: {public_key: " + somePublicKey + ", channel: '1'}}}",
		"channels.*.discord.public_key":       "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {discord: {bot_token: a, channel: '1'}}}",
		"channels.*.discord.channel":          "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {discord: {bot_token: a, public_key: " + somePublicKey + "}}}",
		"channels.*.telegram.bot_token":       "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {telegram: {chat: '1'}}}",
		"channels.*.telegram.chat":            "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {telegram: {bot_token: a}}}",
		"channels.*.teams.url":                "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {teams: {}}}",
		"channels.*.pagerduty.routing_key":    "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {pagerduty: {url: https://a/}}}",
		"channels.*.email.server":             "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {email: {from: a@b, to: [c@d]}}}",
		"channels.*.email.from":               "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {email: {server: 'a:25', to: [c@d]}}}",
		"channels.*.email.to[]":               "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {email: {server: 'a:25', from: a@b}}}",
		"channels.*.push.contact":             "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {push: {allow_private: true}}}",
		"channels.*.webhook.url":              "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {webhook: {secret: whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz}}}",
		"channels.*.webhook.secret":           "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {webhook: {url: https://c/}}}",
		"channels.*.webhook.answers.secret":   "version: 1\nupstreams: [{url: https://a/}]\n" + someChannel + "answers: {approver: a}}}}",
		"channels.*.webhook.answers.approver": "version: 1\nupstreams: [{url: https://a/}]\n" + someChannel + "answers: {secret: whsec_OTg3NjU0MzIxMDk4NzY1NDMyMTA5ODc2}}}}",
		"workflows.*.escalate.after":          "version: 1\nupstreams: [{url: https://a/}]\nworkflows: {w: {escalate: {workflow: v}}, v: {}}",
		"workflows.*.escalate.workflow":       "version: 1\nupstreams: [{url: https://a/}]\nworkflows: {w: {escalate: {after: 1%}}}",
		"workflows.*.quiet_hours.from":        "version: 1\nupstreams: [{url: https://a/}]\nworkflows: {w: {quiet_hours: {to: '01:00'}}}",
		"workflows.*.quiet_hours.to":          "version: 1\nupstreams: [{url: https://a/}]\nworkflows: {w: {quiet_hours: {from: '01:00'}}}",
		"operators.oidc.issuer":               "version: 1\nupstreams: [{url: https://a/}]\noperators: {url: 'https://g', oidc: {client_id: c, roles: {admin: [a]}}}",
		"operators.oidc.client_id":            "version: 1\nupstreams: [{url: https://a/}]\noperators: {url: 'https://g', oidc: {issuer: 'https://i/', roles: {admin: [a]}}}",
	}
	for _, key := range config.Keys(kinds...) {
		if !key.Required {
			continue
		}
		file, ok := without[key.Path]
		if !ok {
			t.Errorf("%s: the test has no file without this setting", key.Path)
			continue
		}
		_, _, err := config.Parse("file", []byte(file), nil, kinds...)
		if want := strings.NewReplacer("tokens[]", "tokens[0]", "rules[]", "rules[0]", "upstreams[]", "upstreams[0]", "endpoints[]", "endpoints[0]", "servers[]", "servers[0]",
			"jwt[]", "jwt[0]", "hosts[]", "hosts[0]", "to[]", "to", "from[]", "from", "channels.*", "channels.c", "workflows.*", "workflows.w").Replace(key.Path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the loader says %v", want, err)
		}
		refuses(t, schema, file)
	}
}

// Users have to learn all settings, so a new one should replace an old one.
func TestNumberOfSettingsIsBounded(t *testing.T) {
	if n := len(config.Keys(kinds...)); n > 204 {
		t.Errorf("there are %d settings", n)
	}
}
