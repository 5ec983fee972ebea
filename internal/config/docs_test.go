package config_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/docs"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

func readDocs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rows returns the cells of those table rows whose first cell is code.
func rows(page string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if name, ok := code(cells[0]); ok && len(cells) > 1 {
			all[name] = cells[1:]
		}
	}
	return all
}

func code(cell string) (string, bool) {
	text := strings.Trim(cell, "`")
	return text, cell == "`"+text+"`"
}

const someChannel = "channels: {c: {webhook: {url: https://c/, secret: whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz, "

const someHash = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// place returns a good file with the setting at path written as value, and the
// same file without it.
func place(path, value string) (with, without string) {
	path = strings.TrimSuffix(strings.TrimSuffix(path, ".*"), "[]")
	const start = "version: 1\nupstreams: [{url: https://a/}]\n"
	upstream := "version: 1\nupstreams: [{url: https://a/, "
	if slices.Contains([]string{"env", "dir", "shared", "max_processes", "max_processes_per_client"}, strings.TrimPrefix(path, "upstreams[].")) {
		upstream = "version: 1\nupstreams: [{command: [a], "
	}
	for _, inside := range []struct{ prefix, before, after string }{
		{"identity.tokens[].", start + "identity: {tokens: [{name: a, hash: '" + someHash + "', ", "}]}\n"},
		{"operators.tokens[].", start + "operators: {tokens: [{name: a, hash: '" + someHash + "', ", "}]}\n"},
		{"identity.jwt[].", start + "identity: {jwt: [{issuer: 'https://i/', audiences: [a], ", "}]}\n"},
		{"operators.oidc.", start + "operators: {url: 'https://g', oidc: {issuer: 'https://i/', client_id: c, roles: {admin: [a]}, ", "}}\n"},
		{"upstreams[].", upstream, "}]\n"},
		{"rules[].", start + "default: deny\nrules: [{match: a, action: approve, ", "}]\n"},
		{"waiting.hosts[].", start + "waiting: {hosts: [{name: a, ", "}]}\n"},
		{"default.", start + "default: {action: approve, ", "}\n"},
		{"channels.*.email.", start + "channels: {c: {email: {server: 'a:25', from: a@b, to: [c@d], ", "}}}\n"},
		{"channels.*.push.", start + "channels: {c: {push: {contact: 'mailto:a@b', ", "}}}\n"},
		{"channels.*.slack.", start + "channels: {c: {slack: {bot_token: b, app_token: a, channel: C1, ", "}}}\n"},
		{"channels.*.webhook.answers.", start + someChannel + "answers: {secret: whsec_OTg3NjU0MzIxMDk4NzY1NDMyMTA5ODc2, approver: a, ", "}}}}\n"},
		{"channels.*.webhook.", start + someChannel, "}}}\n"},
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

// withoutDefault are the settings whose default no file can write.
var withoutDefault = []string{
	"upstreams[].path", "upstreams[].url", "upstreams[].command[]", "identity.mtls.name", "identity.proxy.groups_header",
	"operators.oidc.roles.viewer[]", "operators.oidc.roles.approver[]", "operators.oidc.roles.admin[]",
	"rules[].principals[]", "default",
}

// TestDocsHaveEverySettingAndItsDefault writes each documented default into a
// file: it must make no difference.
func TestDocsHaveEverySettingAndItsDefault(t *testing.T) {
	table, schema := docs.Settings(), compileSchema(t)
	for _, key := range config.Keys() {
		entry, ok := table[key.Path]
		if !ok {
			t.Errorf("%s is not in the docs", key.Path)
			continue
		}
		if entry.Type != key.Type {
			t.Errorf("%s: the docs say that it is a %s, not a %s", key.Path, entry.Type, key.Type)
		}
		switch {
		case key.Required || slices.Contains(withoutDefault, key.Path):
		case entry.Default == "":
			t.Errorf("%s: the docs have no default", key.Path)
		default:
			with, without := place(key.Path, entry.Default)
			if diff := cmp.Diff(valid(t, without), valid(t, with), revealed); diff != "" {
				t.Errorf("%s: the documented default %s is not the default:\n%s", key.Path, entry.Default, diff)
			}
			accepts(t, schema, with)
		}
	}
}

// TestRequired leaves out each setting that must be given: both the loader and
// the schema notice, and the docs say so.
func TestRequired(t *testing.T) {
	schema := compileSchema(t)
	without := map[string]string{
		"version":                             "upstreams: [{url: https://a/}]",
		"rules[].match":                       "version: 1\nupstreams: [{url: https://a/}]\nrules: [{action: deny}]\ndefault: deny",
		"rules[].action":                      "version: 1\nupstreams: [{url: https://a/}]\nrules: [{match: a}]\ndefault: deny",
		"default.action":                      "version: 1\nupstreams: [{url: https://a/}]\ndefault: {reason: a}",
		"waiting.hosts[].name":                "version: 1\nupstreams: [{url: https://a/}]\nwaiting: {hosts: [{limit: none}]}",
		"identity.tokens[].name":              "version: 1\nupstreams: [{url: https://a/}]\nidentity: {tokens: [{hash: '" + someHash + "'}]}",
		"identity.tokens[].hash":              "version: 1\nupstreams: [{url: https://a/}]\nidentity: {tokens: [{name: a}]}",
		"operators.tokens[].name":             "version: 1\nupstreams: [{url: https://a/}]\noperators: {tokens: [{hash: '" + someHash + "'}]}",
		"operators.tokens[].hash":             "version: 1\nupstreams: [{url: https://a/}]\noperators: {tokens: [{name: a}]}",
		"identity.jwt[].issuer":               "version: 1\nupstreams: [{url: https://a/}]\nidentity: {jwt: [{audiences: [a]}]}",
		"identity.jwt[].audiences[]":          "version: 1\nupstreams: [{url: https://a/}]\nidentity: {jwt: [{issuer: 'https://i/'}]}",
		"identity.mtls.ca_file":               "version: 1\nupstreams: [{url: https://a/}]\nidentity: {mtls: {name: cn}}",
		"identity.proxy.from[]":               "version: 1\nupstreams: [{url: https://a/}]\nidentity: {proxy: {header: X-User}}",
		"identity.proxy.header":               "version: 1\nupstreams: [{url: https://a/}]\nidentity: {proxy: {from: [10.0.0.7]}}",
		"channels.*.slack.bot_token":          "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {slack: {app_token: a, channel: C1}}}",
		"channels.*.slack.app_token":          "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {slack: {bot_token: a, channel: C1}}}",
		"channels.*.slack.channel":            "version: 1\nupstreams: [{url: https://a/}]\nchannels: {c: {slack: {bot_token: a, app_token: a}}}",
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
	for _, key := range config.Keys() {
		says := strings.Contains(readDocs(t), "| `"+key.Path+"` | "+key.Type+" | required |")
		if says != key.Required {
			t.Errorf("%s: required %t, and the docs say %t", key.Path, key.Required, says)
		}
		if !key.Required {
			continue
		}
		file, ok := without[key.Path]
		if !ok {
			t.Errorf("%s: no file without it", key.Path)
			continue
		}
		_, _, err := config.Parse("file", []byte(file), nil)
		if want := strings.NewReplacer("tokens[]", "tokens[0]", "rules[]", "rules[0]", "upstreams[]", "upstreams[0]",
			"jwt[]", "jwt[0]", "hosts[]", "hosts[0]", "audiences[]", "audiences", "to[]", "to", "from[]", "from", "channels.*", "channels.c", "workflows.*", "workflows.w").Replace(key.Path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the loader says %v", want, err)
		}
		refuses(t, schema, file)
	}
}

func TestDocsHaveNoSettingThatIsNot(t *testing.T) {
	var known []string
	for _, key := range config.Keys() {
		known = append(known, key.Path)
	}
	for _, v := range config.Variables() {
		known = append(known, v.Name)
	}
	for name := range rows(readDocs(t)) {
		if !strings.HasPrefix(name, "-") && !slices.Contains(known, name) {
			t.Errorf("%s is in the docs only", name)
		}
	}
}

func TestDocsHaveEveryVariable(t *testing.T) {
	table := rows(readDocs(t))
	for _, v := range config.Variables() {
		cells, ok := table[v.Name]
		if !ok {
			t.Errorf("%s is not in the docs", v.Name)
			continue
		}
		if got, want := strings.ReplaceAll(cells[0], "`", ""), strings.Join(v.Settings, ", "); got != want {
			t.Errorf("%s: the docs say it is for %q, not %q", v.Name, got, want)
		}
	}
}
