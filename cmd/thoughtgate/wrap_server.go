package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// A remote is what the command line says of a server over HTTP.
type remote struct {
	url       string
	headers   []string
	tokenFile string
	server    config.Upstream // what url and headers say, once they are read
}

// check returns what is wrong with a command line that has a command as well.
func (r *remote) check(command []string) error {
	switch {
	case r.url == "" && len(command) == 0:
		return errors.New("give the COMMAND of a server after --, or the URL of one with --url")
	case r.url != "" && len(command) > 0:
		return errors.New("give either --url or a COMMAND")
	case r.url == "" && (len(r.headers) > 0 || r.tokenFile != ""):
		return errors.New("--header and --token-file need --url")
	default:
		return nil
	}
}

// read reads what the command line says of the server, if there is one, and returns
// what is wrong with it.
func (r *remote) read() (err error) {
	if r.url == "" {
		return nil
	}
	if r.server, err = config.RemoteServer(r.url, r.headers, os.Environ()); err != nil {
		return err
	}
	if !r.server.IsSafe() && (len(r.headers) > 0 || r.tokenFile != "") {
		return errors.New("--header and --token-file need an https URL, or one on this machine: others on the network could read them")
	}
	return nil
}

// reach notes which server is wrapped, of a command line that was read.
func (w *wrapping) reach(at remote, command []string) (err error) {
	if at.url == "" {
		w.server = config.DefaultUpstream()
		w.server.Command, w.server.Name = command, cmp.Or(w.name, wrapName(command))
		w.name = w.server.Name
		return nil
	}
	w.server = at.server
	w.name = cmp.Or(w.name, urlName(w.server.URL))
	w.server.Name = w.name
	if at.tokenFile == "" {
		return nil
	}
	w.token = func() (string, error) { return readToken(at.tokenFile) }
	_, err = w.token() // so that a mistake shows at once
	return err
}

// maxToken is how large a file with a token may be.
const maxToken = 64 << 10

// readToken returns the token in a file. The errors do not show what is in it.
func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := bytes.TrimSpace(text)
	if len(token) == 0 || len(token) > maxToken || bytes.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("%s has no token: one word of printable characters is wanted", file)
	}
	return string(token), nil
}

// launchers are programs, and words to them, that start others.
var launchers = []string{
	"npx", "npm", "pnpm", "yarn", "bunx", "bun", "deno", "node", "uv", "uvx", "pipx", "python", "python3", "docker", "podman",
	"run", "exec", "dlx", "tool", "cmd", "sh", "bash", "env",
}

var (
	notInNames = regexp.MustCompile(`[^a-z0-9]+`)
	maxBase    = 48 // bytes, which leaves room for the digest
)

// wrapName makes a name of a command that is the same whenever the command is
// started in the same directory, and another one for every other command: calls to
// different servers must never be taken for the same call.
func wrapName(command []string) string {
	base := filepath.Base(command[0])
	for _, word := range command {
		plain := strings.TrimSuffix(strings.ToLower(filepath.Base(word)), ".exe")
		if !strings.HasPrefix(word, "-") && !slices.Contains(launchers, plain) {
			base = plain
			break
		}
	}
	if at := strings.LastIndex(base, "@"); at > 0 {
		base = base[:at] // a version
	}
	base = strings.TrimSuffix(base, filepath.Ext(base))
	return named(base, workingDir()+"\x00"+strings.Join(command, "\x00"))
}

// urlName makes a name of a URL that is the same whenever the URL is.
func urlName(target *url.URL) string { return named(target.Hostname(), target.String()) }

// named returns a name that begins with a part of base, and is another one for every
// other text.
func named(base, text string) string {
	base = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(base), "-"), "-")
	base = strings.Trim(base[:min(len(base), maxBase)], "-")
	if base == "" {
		base = "server"
	}
	sum := sha256.Sum256([]byte(text))
	return base + "-" + hex.EncodeToString(sum[:4])
}
