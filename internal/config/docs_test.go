package config_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
func rows(docs string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(docs) {
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

const someHash = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// place returns a good file with the setting at path written as value, and the
// same file without it.
func place(path, value string) (with, without string) {
	path = strings.TrimSuffix(strings.TrimSuffix(path, ".*"), "[]")
	const start = "version: 1\nupstreams: [{url: https://a/}]\n"
	for _, inside := range []struct{ prefix, before, after string }{
		{"identity.tokens[].", start + "identity: {tokens: [{name: a, hash: '" + someHash + "', ", "}]}\n"},
		{"operators.tokens[].", start + "operators: {tokens: [{name: a, hash: '" + someHash + "', ", "}]}\n"},
		{"identity.jwt[].", start + "identity: {jwt: [{issuer: 'https://i/', audiences: [a], ", "}]}\n"},
		{"operators.oidc.", start + "operators: {url: 'https://g', oidc: {issuer: 'https://i/', client_id: c, roles: {admin: [a]}, ", "}}\n"},
		{"upstreams[].", "version: 1\nupstreams: [{url: https://a/, ", "}]\n"},
		{"rules[].", start + "default: deny\nrules: [{match: a, action: approve, ", "}]\n"},
		{"waiting.hosts[].", start + "waiting: {hosts: [{name: a, ", "}]}\n"},
		{"default.", start + "default: {action: approve, ", "}\n"},
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

// TestDocsHaveEverySettingAndItsDefault writes each documented default into a
// file: it must make no difference.
func TestDocsHaveEverySettingAndItsDefault(t *testing.T) {
	table := rows(readDocs(t))
	withoutDefault := []string{
		"version", "upstreams[].url", "upstreams[].path",
		"identity.tokens[].name", "identity.tokens[].hash", "operators.tokens[].name", "operators.tokens[].hash",
		"identity.jwt[].issuer", "identity.jwt[].audiences[]", "identity.mtls.ca_file", "identity.mtls.name",
		"identity.proxy.from[]", "identity.proxy.header", "identity.proxy.groups_header",
		"operators.oidc.issuer", "operators.oidc.client_id", "operators.oidc.roles.viewer[]", "operators.oidc.roles.approver[]", "operators.oidc.roles.admin[]",
		"waiting.hosts[].name", "rules[].match", "rules[].action", "rules[].principals[]", "default", "default.action",
	}
	for _, key := range config.Keys() {
		cells, ok := table[key]
		if !ok {
			t.Errorf("%s is not in the docs", key)
			continue
		}
		value, isCode := code(cells[0])
		if slices.Contains(withoutDefault, key) {
			continue
		}
		if !isCode {
			t.Errorf("%s: the docs have no default but %q", key, cells[0])
			continue
		}
		with, without := place(key, value)
		if diff := cmp.Diff(valid(t, without), valid(t, with), revealed); diff != "" {
			t.Errorf("%s: the documented default %s is not the default:\n%s", key, value, diff)
		}
	}
}

func TestDocsHaveNoSettingThatIsNot(t *testing.T) {
	known := config.Keys()
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

func TestExamplesInDocsLoad(t *testing.T) {
	identity, err := os.ReadFile("../../docs/identity.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(readDocs(t)+string(identity), -1)
	if len(blocks) < 3 {
		t.Fatalf("found only %d examples", len(blocks))
	}
	for _, b := range blocks {
		valid(t, b[1], "FILES_KEY=k", "CRM_TOKEN=t", "OIDC_SECRET=s")
	}
}
