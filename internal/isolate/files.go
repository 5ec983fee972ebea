package isolate

import (
	_ "embed"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
)

// The configuration of a gate, without its servers, and its unit.
var (
	//go:embed gate.yaml
	configText string
	//go:embed gate.service
	unitText string
)

// config returns the configuration of the gate, and the environment of the service with the values
// that the configuration refers to. The servers run as the same user: they can read the configuration,
// but no variable of the gate except their own.
func (s *Setup) config() (text, environment string) {
	var b, secrets strings.Builder
	count := 0
	for _, p := range s.programs {
		var command, env []string
		for _, arg := range p.Command {
			command = append(command, quote(arg))
		}
		for _, name := range slices.Sorted(maps.Keys(p.Env)) {
			count++
			env = append(env, fmt.Sprintf(`%s: "${SECRET_%d}"`, quote(name), count))
			fmt.Fprintf(&secrets, "SECRET_%d=\"%s\"\n", count, inEnvironment.Replace(p.Env[name]))
		}
		fmt.Fprintf(&b, "  - name: %s\n    path: /mcp/%[1]s\n    command: [%s]\n    env: { %s }\n", p.Name, strings.Join(command, ", "), strings.Join(env, ", "))
	}
	return strings.NewReplacer(
		"{socket}", s.paths.socket, "{inbox}", s.o.Inbox, "{url}", inboxURL(s.o.Inbox), "{name}", quote(s.o.Person.Name),
		"{hash}", identity.HashOf(s.Token).String(), "{state}", s.paths.state,
	).Replace(configText) + b.String(), secrets.String()
}

// inEnvironment escapes a value in double quotes in a file of systemd with environment variables.
var inEnvironment = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", `$`, `\$`)

// quote returns a text as a value of the configuration, which may refer to no variable.
func quote(text string) string {
	quoted, _ := jsontext.AppendQuote(nil, strings.ReplaceAll(text, "$", "$$")) // clients' files are UTF-8
	return string(quoted)
}

// inboxURL returns the URL of the inbox. Browsers give passkeys to localhost, not to 127.0.0.1.
func inboxURL(inbox string) string {
	host, port, _ := net.SplitHostPort(inbox)
	if host == "127.0.0.1" || host == "::1" {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// unit returns the unit of systemd.
func (s *Setup) unit() string {
	var grants strings.Builder
	for _, g := range s.record.Grants {
		grants.WriteString(g.bind() + "\n")
	}
	return strings.NewReplacer(
		"{person}", s.o.Person.Name, "{user}", s.paths.user, "{path}", searchPath, "{state}", s.paths.state,
		"{program}", s.o.Program, "{config}", s.paths.config, "{secrets}", s.paths.secrets, "{key}", s.paths.key, "{grants}", grants.String(),
	).Replace(unitText)
}
