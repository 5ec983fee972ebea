package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/conformance/suite"
)

// connected is the leg in which the gate itself signs in for the servers of the suite, and the SDK's client needs
// no token.
var connected = leg{version: clients.version, policy: "connected"}

// signsIn reports whether a scenario is about signing in with a browser, as the gate does.
func signsIn(scenario string) bool {
	name, ok := strings.CutPrefix(scenario, "auth/")
	return ok && !slices.ContainsFunc([]string{"client-credentials-", "enterprise-", "dpop", "wif-"}, func(other string) bool { return strings.HasPrefix(name, other) })
}

// only returns the results of the scenarios that the leg has.
func (l leg) only(all suite.Results) suite.Results {
	if l != connected {
		return all
	}
	some := make(suite.Results)
	for name, checks := range all {
		if signsIn(name) {
			some[name] = checks
		}
	}
	return some
}

// connectedClients runs one scenario, or all of the leg without a name.
func (b *rig) connectedClients(ctx context.Context, scenario, dir string) (suite.Results, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	scenarios := []string{scenario}
	if scenario == "" {
		scenarios = nil
		for name := range connected.only(b.known[clients]) {
			scenarios = append(scenarios, name)
		}
		slices.Sort(scenarios)
	}
	all := make(suite.Results)
	command := strings.Join([]string{self, "-connected", b.gate, b.client}, " ")
	for _, name := range scenarios {
		one, err := b.suite.Run(ctx, suite.Target{Client: command, Scenario: name}, filepath.Join(dir, filepath.Base(name)))
		if err != nil {
			return nil, err
		}
		all[name] = one[name]
	}
	return all, nil
}

// document is the metadata of a client that the suite knows.
const document = "https://conformance-test.local/client-metadata.json"

// operatorToken is the token of the operator who connects the gate.
const operatorToken = "0123456789abcdefghijklmnop"

// attempts is how often the operator connects the gate, and the client is run, until the client is content. Some
// servers ask for more scopes, or for another authorization server, after the first call.
const attempts = 3

// runConnected runs a client with a gate in front of a server. The gate signs in at the server.
func runConnected(ctx context.Context, gate, client, server string) error {
	dir, err := os.MkdirTemp("", "thoughtgate-conformance-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// A scenario may have registered a client in advance.
	known := struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
	}{ID: document}
	_ = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &known)
	file := filepath.Join(dir, "gate.yaml")
	issuer := ""
	if known.ID != document {
		if issuer, err = issuerOf(ctx, server); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("version: 1\nstore: 'memory:'\noperators: {token: %s}\nupstreams: [{url: %q, auth: {oauth: {grant: shared, client_id: %q, client_secret: %q%s}}}]\ndefault: forward\n",
		operatorToken, server, known.ID, known.Secret, issuer)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	p, err := start(ctx, gate, "serve", "--listen", "127.0.0.1:0", "--operators-listen", "127.0.0.1:0", "--config", file)
	if err != nil {
		return err
	}
	defer p.stop()
	var at addresses
	if err := p.await(ctx, func() bool { at = addressesIn(p.log()); return at.Agents != "" }); err != nil {
		return err
	}
	for range attempts {
		if err = connect(ctx, "http://"+at.Operators); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, client, "http://"+at.Agents+"/mcp")
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = os.Stdout, os.Stderr, stopLimit
		if err = cmd.Run(); err == nil {
			break
		}
	}
	return err
}

// issuerOf returns the setting issuer for a server: the authorization server that its metadata names.
func issuerOf(ctx context.Context, server string) (string, error) {
	at, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	for _, path := range []string{at.Path, ""} {
		b := browser{http.Client{}}
		text, err := b.open(ctx, at.Scheme+"://"+at.Host+"/.well-known/oauth-protected-resource"+path, nil)
		var about struct {
			Servers []string `json:"authorization_servers"`
		}
		if err == nil && json.Unmarshal([]byte(text), &about) == nil && len(about.Servers) > 0 {
			return fmt.Sprintf(", issuer: %q", about.Servers[0]), nil
		}
	}
	return "", fmt.Errorf("%s names no authorization server", server)
}

var (
	formToken = regexp.MustCompile(`name="csrf" value="([^"]+)"`)
	nextPage  = regexp.MustCompile(`rel="noreferrer" href="([^"]+)"`)
)

// connect signs in at the inbox and connects the gate, as an operator with a browser does.
func connect(ctx context.Context, inbox string) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	b := browser{http.Client{Jar: jar}}
	if _, err := b.open(ctx, inbox+"/login", url.Values{"token": {operatorToken}}); err != nil {
		return err
	}
	page, err := b.open(ctx, inbox+"/connections", nil)
	if err != nil {
		return err
	}
	token := formToken.FindStringSubmatch(page)
	if token == nil {
		return errors.New("the page of connections has no form")
	}
	page, err = b.open(ctx, inbox+"/connections/default/connect", url.Values{"csrf": {token[1]}})
	if err != nil {
		return err
	}
	if to := nextPage.FindStringSubmatch(page); to != nil {
		_, err = b.open(ctx, html.UnescapeString(to[1]), nil)
	}
	return err
}

// A browser keeps the cookies of the operator.
type browser struct{ client http.Client }

// open opens a page, or sends a form.
func (b *browser) open(ctx context.Context, address string, form url.Values) (string, error) {
	method, body := http.MethodGet, ""
	if form != nil {
		method, body = http.MethodPost, form.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	resp, err := b.client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	page, err := io.ReadAll(resp.Body)
	return string(page), err
}
