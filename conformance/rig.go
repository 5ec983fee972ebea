package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/conformance/suite"
)

// A leg is one setting in which the server is compared directly and through the gate.
type leg struct {
	version  string // empty: each scenario at its own version, extensions included
	sessions bool   // the server keeps sessions, and supports only the legacy era
	policy   string // the name of the gate's policy in policies; empty without a policy
	endpoint string // of the gate: "one" or "three" servers; empty for a gate without endpoints
	server   string // typescript: the server of the TypeScript SDK; program: the Go SDK's, over a pipe; empty: over HTTP
}

// policies are policies under which the gate must lose nothing: they forward everything, but
// make the gate parse every message and rewrite every list.
var policies = map[string]string{
	"rules":    "rules: [{match: \"*\", action: forward}]\ndefault: deny\n",
	"forward":  "rules: [{match: no_such_tool, action: deny}]\ndefault: forward\n",
	translated: "default: forward\n",
}

// translated is the policy of legs in which the server behind the gate is of the other era than the leg's.
const translated = "translated"

// legs covers every version and both ways of running the server. Legs with a version of the
// other era are deliberate: refusals must be forwarded unchanged, too. 2025-03-26 has one
// scenario, about sessions. Each policy is tried with the server of each era.
func legs() []leg {
	all := []leg{
		{version: "2025-03-26", sessions: true},
		{version: "2025-06-18", sessions: true},
		{version: "2025-11-25", sessions: true},
		{version: "2026-07-28", sessions: true},
		{sessions: true},
		{version: "2025-06-18"},
		{version: "2025-11-25"},
		{version: "2026-07-28"},
		{},
		{version: "2025-11-25", sessions: true, policy: "rules"},
		{version: "2026-07-28", policy: "rules"},
		{version: "2025-11-25", sessions: true, policy: "forward"},
		{version: "2026-07-28", policy: "forward"},
		{version: "2025-06-18", sessions: true, policy: translated},
		{version: "2025-11-25", sessions: true, policy: translated},
		{version: "2026-07-28", policy: translated},
		clients,
		connected,
	}
	for _, policy := range []string{"", "rules"} {
		for _, endpoint := range []string{"one", "three"} {
			all = append(all, leg{version: "2025-11-25", sessions: true, policy: policy, endpoint: endpoint},
				leg{version: "2026-07-28", policy: policy, endpoint: endpoint})
		}
	}
	return append(all, leg{version: "2025-11-25", sessions: true, policy: "rules", endpoint: "three", server: "typescript"},
		leg{version: "2025-11-25", sessions: true, policy: "rules", endpoint: "three", server: "program"},
		leg{version: "2026-07-28", policy: "rules", endpoint: "three", server: "program"})
}

// clients is the leg in which the SDK's client is compared, with servers of the suite: directly,
// and with a gate between them. Most scenarios are about signing in for the server.
var clients = leg{version: "clients"}

// String returns the name of the leg, which also names its files.
func (l leg) String() string {
	switch l {
	case clients:
		return l.version
	case connected:
		return l.version + "-" + l.policy
	}
	version, mode := l.version, "stateless"
	if version == "" {
		version = "any"
	}
	if l.sessions {
		mode = "sessions"
	}
	for _, more := range []string{l.policy, l.endpoint, l.server} {
		if more != "" {
			mode += "-" + more
		}
	}
	return version + "-" + mode
}

const (
	// retries is how often a scenario that differs is run again through the gate before the
	// difference counts.
	retries = 2
	// flaky is how many scenarios of a leg may differ by chance. If more differ, the gate has
	// a defect, and running all of them again would only take time.
	flaky = 5
)

// A rig has everything that the runs of all legs share.
type rig struct {
	suite  *suite.Suite
	dir    string // for programs, logs and the suite's files
	server string
	peer   string // the program of another server of an endpoint
	client string
	gate   string
	known  map[leg]suite.Results // of legs without a policy, directly
}

// build builds the gate, and the server and client from the SDK version in go.mod. It builds those
// inside the SDK's own module, so that this module needs none of their dependencies.
func (b *rig) build(ctx context.Context) error {
	const sdk = "github.com/modelcontextprotocol/go-sdk"
	if _, err := tool(ctx, "mod", "download", sdk); err != nil {
		return err
	}
	source, err := tool(ctx, "list", "-m", "-f", "{{.Dir}}", sdk)
	if err != nil {
		return err
	}
	b.server, b.client, b.gate = filepath.Join(b.dir, "everything-server"), filepath.Join(b.dir, "everything-client"), filepath.Join(b.dir, "thoughtgate")
	b.peer = filepath.Join(b.dir, "memory")
	for program, from := range map[string]string{b.server: "conformance/everything-server", b.client: "conformance/everything-client", b.peer: "examples/server/memory"} {
		if _, err := tool(ctx, "build", "-C", source, "-o", program, "./"+from); err != nil {
			return err
		}
	}
	_, err = tool(ctx, "build", "-o", b.gate, "./cmd/thoughtgate")
	return err
}

// tool runs a command of the go tool and returns its output. Its error output becomes part of
// the error.
func tool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.WaitDelay = stopLimit
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// compare runs one leg directly and through the gate, and repeats the scenarios that differ.
func (b *rig) compare(ctx context.Context, l leg) (outcome, error) {
	o := outcome{leg: l}
	var err error
	if o.direct, err = b.directly(ctx, l); err != nil {
		return o, fmt.Errorf("directly: %w", err)
	}
	o.direct = l.only(o.direct)
	if o.direct.Total(suite.Success) == 0 {
		return o, errors.New("nothing passes directly, so there is nothing to compare")
	}
	if o.gated, err = b.throughGate(ctx, l, ""); err != nil {
		return o, fmt.Errorf("through the gate: %w", err)
	}
	for range retries {
		differing := o.differing()
		if len(differing) > flaky {
			break
		}
		for _, scenario := range differing {
			again, err := b.throughGate(ctx, l, scenario)
			if err != nil {
				return o, fmt.Errorf("through the gate again: %w", err)
			}
			o.gated[scenario] = again[scenario]
			o.reruns = append(o.reruns, scenario)
		}
	}
	return o, nil
}

// directly runs all scenarios of a leg against a new server, unless a leg with the same server
// has done so: the gate's settings do not matter here.
func (b *rig) directly(ctx context.Context, l leg) (suite.Results, error) {
	l.policy, l.endpoint = "", ""
	if results, ok := b.known[l]; ok {
		return results, nil
	}
	results, err := b.runDirectly(ctx, l)
	if err == nil {
		if b.known == nil {
			b.known = make(map[leg]suite.Results)
		}
		b.known[l] = results
	}
	return results, err
}

func (b *rig) runDirectly(ctx context.Context, l leg) (suite.Results, error) {
	if l == clients {
		return b.suite.Run(ctx, suite.Target{Client: b.client}, filepath.Join(b.dir, l.String()+"-direct"))
	}
	start := b.startServer
	if l.server == program { // which the suite cannot reach without a gate
		start = func(ctx context.Context, l leg) (string, *process, error) { return b.startGate(ctx, l, "", "") }
	}
	url, server, err := start(ctx, l)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	return b.suite.Run(ctx, suite.Target{URL: url, Version: l.version}, filepath.Join(b.dir, l.String()+"-direct"))
}

// throughGate runs one scenario of a leg, or all without a name, against a new server behind a
// new gate.
func (b *rig) throughGate(ctx context.Context, l leg, scenario string) (suite.Results, error) {
	dir, err := os.MkdirTemp(b.dir, l.String()+"-gate-")
	if err != nil {
		return nil, err
	}
	switch l {
	case clients:
		return b.clientThroughGate(ctx, scenario, dir)
	case connected:
		return b.connectedClients(ctx, scenario, dir)
	}
	var url string
	if l.server != program {
		var server *process
		if url, server, err = b.startServer(ctx, l); err != nil {
			return nil, err
		}
		defer server.stop()
	}
	var other string
	if l.endpoint == "three" {
		var server *process
		if other, server, err = b.startServer(ctx, peer); err != nil {
			return nil, err
		}
		defer server.stop()
	}
	url, gate, err := b.startGate(ctx, l, url, other)
	if err != nil {
		return nil, err
	}
	defer gate.stop()
	results, err := b.suite.Run(ctx, suite.Target{URL: url, Version: l.version, Scenario: scenario}, dir)
	return results, errors.Join(err, os.WriteFile(filepath.Join(dir, "gate.log"), gate.log(), 0o600))
}

// clientThroughGate runs one scenario of the client, or all without a name. The suite starts a server for each, and
// this program as the client, which does what through does.
func (b *rig) clientThroughGate(ctx context.Context, scenario, dir string) (suite.Results, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := strings.Join([]string{self, "-through", b.gate, b.client}, " ")
	return b.suite.Run(ctx, suite.Target{Client: command, Scenario: scenario}, dir)
}

// through runs a client with the gate in front of a server.
func through(ctx context.Context, gate, client, server string) error {
	url, p, err := (&rig{gate: gate}).startGate(ctx, leg{}, server, "")
	if err != nil {
		return err
	}
	defer p.stop()
	cmd := exec.CommandContext(ctx, client, url)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = os.Stdout, os.Stderr, stopLimit
	return cmd.Run()
}

// startServer starts the SDK's server of a leg and returns the URL of its endpoint.
func (b *rig) startServer(ctx context.Context, l leg) (string, *process, error) {
	addr, err := freeAddress(ctx)
	if err != nil {
		return "", nil, err
	}
	command := []string{b.server, "-http=" + addr, fmt.Sprintf("-stateless=%t", l.sessions == (l.policy == translated))}
	if l.server == typescript {
		command = []string{b.suite.Node, b.suite.Server, addr, "test"}
		if l == peer {
			command[3] = "other"
		}
	}
	p, err := start(ctx, command[0], command[1:]...)
	if err != nil {
		return "", nil, err
	}
	if err := p.await(ctx, func() bool { return reachable(ctx, addr) }); err != nil {
		return "", nil, err
	}
	return "http://" + addr + "/mcp", p, nil
}

// startGate starts the gate of a leg in front of upstream, and returns the URL of its endpoint for agents. An
// endpoint of three servers has other as well.
func (b *rig) startGate(ctx context.Context, l leg, upstream, other string) (string, *process, error) {
	args := []string{"serve", "--listen", "127.0.0.1:0", "--operators-listen", "127.0.0.1:0"}
	if l == (leg{version: l.version, sessions: l.sessions}) {
		args = append(args, "--upstream", upstream)
	} else {
		file := filepath.Join(b.dir, l.String()+".yaml")
		if err := os.WriteFile(file, []byte(b.config(l, upstream, other)), 0o600); err != nil {
			return "", nil, err
		}
		args = append(args, "--config", file)
	}
	p, err := start(ctx, b.gate, args...)
	if err != nil {
		return "", nil, err
	}
	var addr string
	if err := p.await(ctx, func() bool { addr = addressesIn(p.log()).Agents; return addr != "" }); err != nil {
		return "", nil, err
	}
	return "http://" + addr + "/mcp", p, nil
}

// The servers of legs that are not the Go SDK's over HTTP.
const (
	typescript = "typescript"
	program    = "program"
)

// peer is the server over HTTP that an endpoint of three has besides the leg's. Its resources are others.
var peer = leg{sessions: true, server: typescript}

// config returns the configuration of a gate. In an endpoint, the names of the server of the leg have no prefix.
func (b *rig) config(l leg, upstream, other string) string {
	server := fmt.Sprintf("url: %q, translate: %t", upstream, l.policy == translated)
	if l.server == program {
		server = fmt.Sprintf("command: [%q]", b.server)
	}
	text := "version: 1\nstore: \"memory:\"\n" + policies[l.policy] + "upstreams:\n- {name: tested, " + server + "}\n"
	switch l.endpoint {
	case "one":
		text += "endpoints: [{path: /mcp, servers: [{upstream: tested}]}]\n"
	case "three":
		text += fmt.Sprintf("- {name: typescript, url: %q, translate: true}\n- {name: go, command: [%q]}\n", other, b.peer) +
			"endpoints: [{path: /mcp, servers: [{upstream: typescript, prefix: typescript}, {upstream: tested, prefix: ''}, {upstream: go}]}]\n"
	}
	return text
}

// addresses are those of a gate.
type addresses struct {
	Message   string `json:"msg"`
	Agents    string `json:"agents"`
	Operators string `json:"operators"`
}

// addressesIn returns the addresses in a gate's log, or nothing if the log does not contain them yet.
func addressesIn(log []byte) addresses {
	for line := range bytes.Lines(log) {
		var entry addresses
		if json.Unmarshal(line, &entry) == nil && entry.Message == "listening" {
			return entry
		}
	}
	return addresses{}
}
