package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/process"
	"github.com/thoughtgate/thoughtgate-go/internal/signin"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httplink"
)

// wrapConfig and wrapPolicy are the configuration of wrap without --config.
var (
	//go:embed wrap.yaml
	wrapConfig []byte
	//go:embed wrap.cedar
	wrapPolicy []byte
)

// wrapRestarts is how often wrap restarts a server per minute.
const wrapRestarts = 3

func newWrap() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wrap [flags] -- COMMAND [ARGUMENT...]",
		Short: "Gate an MCP server for a local agent, over standard input and output",
		Long: "Run COMMAND, an MCP server that uses standard input and output, with the gate between it and the agent that started\n" +
			"wrap. With --url, connect to a server over HTTP instead. Without a configuration file, tools that only read are\n" +
			"forwarded and all others wait for approval. Standard output has only MCP messages. The server's standard error is\n" +
			"passed through. With --server or --endpoint, several servers are one: tools of the first keep their names, those of\n" +
			"the others begin with NAME__.",
	}
	file := configFlag(cmd)
	flags := cmd.Flags()
	name := flags.String("name", "", "`name` of the server in rules and in the inbox (default: made from the command or the URL)")
	again := flags.Bool("restart", true, "start the server again when it ends by itself")
	socket := flags.String("socket", "", "Unix `socket` of a gate that runs as another user, in place of COMMAND; see thoughtgate isolate")
	var at remote
	flags.StringVar(&at.url, "url", "", "`URL` of a server over HTTP, in place of COMMAND; env:VARIABLE takes it from the environment")
	flags.StringArrayVar(&at.headers, "header", nil, "`header` for the server at --url, as 'NAME: VALUE'; ${VARIABLE} or env:VARIABLE keeps a secret off the command line; may be repeated")
	at.client.flags(flags)
	var several severalFlags
	several.add(flags)
	flags.StringVar(&at.tokenFile, "token-file", "", "`file` with the bearer token for the server at --url; read for every request")
	cmd.Args = positional(func(_ *cobra.Command, command []string) error {
		switch {
		case *socket != "" && (several.given() || *file != ""):
			return errOnlyName
		case *socket != "":
			return at.checkSocket(command, *name)
		case several.given():
			return several.check(at, command, *name, *file)
		default:
			return at.check(command)
		}
	})
	cmd.RunE = func(cmd *cobra.Command, command []string) error {
		if *socket != "" {
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			return httplink.Pipe{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Dial: httplink.Socket(*socket), Path: "/mcp/" + *name, Log: log}.Run(cmd.Context())
		}
		w := wrapping{name: *name, stdin: cmd.InOrStdin(), stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr()}
		if err := cmp.Or(at.read(), w.setSeveral(several)); err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		if err := w.setServer(at, command); err != nil {
			return err
		}
		if *again {
			w.restarts = wrapRestarts
		}
		// A write to a broken pipe must return an error, even on standard output.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		gate, err := w.build(*file)
		if err != nil {
			return err
		}
		collectLess()
		return w.run(cmd.Context(), gate)
	}
	return cmd
}

// A wrapping is a server to wrap, or several as one.
type wrapping struct {
	name           string
	server         config.Upstream
	several        *config.Several        // nil for one server
	endpoint       string                 // the path of several servers
	token          func() (string, error) // see app.Wrap
	client         signInClient
	tokens         []*signin.Tokens // of the servers that somebody may sign in to
	restarts       int
	stdin          io.Reader
	stdout, stderr io.Writer
}

// build returns the gate in front of the server, and prints the URL of its inbox.
func (w *wrapping) build(file string) (*app.App, error) {
	sources := config.Sources{File: file, Server: &w.server, Several: w.several, Starter: &config.Starter{
		Name: "the built-in configuration", Text: wrapConfig, Policies: []policy.Source{{Name: "wrap.cedar", Text: wrapPolicy}},
	}}
	if w.several != nil {
		sources.Server = nil
	}
	cfg, warnings, err := loadWrap(w.stderr, sources)
	if err = cmp.Or(err, w.checkEndpoint(cfg, file)); err != nil {
		return nil, err
	}
	log, level := newLog(w.stderr, cfg, warnings)
	host, err := process.Starter(os.Args[1:])
	if err != nil {
		log.Info("the process of the agent is not known, so its decisions cannot be told from those of people", "err", err)
	}
	how := app.Wrap{
		In: w.stdin, Dir: workingDir(), Out: w.stdout, Stderr: w.stderr, Env: cfg.WrappedEnviron(os.Environ()), User: userName(), Host: host, Restarts: w.restarts,
		Token: w.token, Tokens: map[string]httpclient.Tokens{},
	}
	for _, u := range cfg.Upstreams {
		if tokens := w.newTokens(cfg, log, u); tokens != nil {
			w.tokens, how.Tokens[u.Name] = append(w.tokens, tokens), tokens
		}
	}
	gate, err := w.newGate(cfg, log, how)
	if err != nil {
		return nil, err
	}
	err = reloadFrom(gate, level, func(stderr io.Writer) (config.Config, []config.Problem, error) { return loadWrap(stderr, sources) })
	if err = errors.Join(err, w.announce(gate)); err != nil {
		return nil, errors.Join(err, gate.Close())
	}
	return gate, nil
}

// newGate returns the gate for one server, or for several.
func (w *wrapping) newGate(cfg config.Config, log *slog.Logger, how app.Wrap) (*app.App, error) {
	if w.several == nil {
		return app.NewWrap(cfg, log, how)
	}
	var names []string
	for _, u := range cfg.Upstreams {
		names = append(names, u.Name)
	}
	w.name = strings.Join(names, ", ")
	return app.NewWrapEndpoint(cfg, log, how, w.endpoint)
}

// run runs the gate until its agent or its server has ended. A person who signs in meanwhile can
// finish: then the next gate has a token.
func (w *wrapping) run(ctx context.Context, gate *app.App) error {
	for _, tokens := range w.tokens {
		defer tokens.Close()
		defer context.AfterFunc(ctx, tokens.Close)() // requests that wait for the person must not delay the end
	}
	err := gate.Run(ctx)
	for _, tokens := range w.tokens {
		tokens.Wait(ctx)
	}
	return err
}

// loadWrap is like load, but uses the desk unless the configuration has a store or
// operators.
func loadWrap(stderr io.Writer, s config.Sources) (config.Config, []config.Problem, error) {
	cfg, warnings, err := load(stderr, s)
	if err != nil || cfg.StateDir == "" || cfg.Given("store") || cfg.Given("operators") {
		return cfg, warnings, err
	}
	s.Overrides = append(slices.Clone(s.Overrides), config.Override{Source: "wrap", Setting: "store", Values: []string{config.DeskStore}})
	return load(stderr, s)
}

// announce prints the URL of the inbox. The agent's host may log standard error, so the
// token goes to a private file.
func (w wrapping) announce(gate *app.App) error {
	where := ""
	if gate.GeneratedToken() != "" {
		if err := gate.SaveToken(); err != nil {
			return err
		}
		where = ", operator token in " + gate.TokenFile()
	}
	_, err := fmt.Fprintf(w.stderr, "thoughtgate: %s: calls that need approval wait at %s%s\n", w.name, gate.InboxURL(), where)
	return err
}

// userName returns the name of the current user.
func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

// A remote has the flags for a server over HTTP.
type remote struct {
	url       string
	headers   []string
	tokenFile string
	client    signInClient
	server    config.Upstream // set by read
}

// check returns an error if the flags contradict each other or the command.
func (r *remote) check(command []string) error {
	switch {
	case r.url == "" && len(command) == 0:
		return errors.New("give the COMMAND of a server after --, or the URL of one with --url")
	case r.url != "" && len(command) > 0:
		return errors.New("give either --url or a COMMAND")
	case r.url == "" && r.hasFlags():
		return errors.New("--header, --token-file, --client-id and --issuer need --url")
	default:
		return r.client.check()
	}
}

// hasFlags reports whether there are flags about a server over HTTP.
func (r *remote) hasFlags() bool {
	return len(r.headers) > 0 || r.tokenFile != "" || r.client != signInClient{}
}

var errOnlyName = errors.New("--socket takes only --name: the gate at the socket has the server and the configuration")

// checkSocket returns an error if the flags or the command contradict --socket.
func (r *remote) checkSocket(command []string, name string) error {
	switch {
	case len(command) > 0 || r.url != "" || r.hasFlags():
		return errOnlyName
	case name == "":
		return errors.New("--socket needs the --name of a server of that gate")
	default:
		return nil
	}
}

// fromEnvironment begins a value that is in an environment variable. Clients replace ${VARIABLE} in
// their files, so init writes env:VARIABLE.
const fromEnvironment = "env:"

// read parses the URL and the headers, if there is a URL.
func (r *remote) read() (err error) {
	if r.url == "" {
		return nil
	}
	target := r.url
	if name, ok := strings.CutPrefix(target, fromEnvironment); ok {
		target = os.Getenv(name)
	}
	var headers []string
	for _, line := range r.headers {
		if name, variable, ok := strings.Cut(line, ": "+fromEnvironment); ok {
			line = name + ": ${" + variable + "}"
		}
		headers = append(headers, line)
	}
	if r.server, err = config.RemoteServer(target, headers, os.Environ()); err != nil {
		return err
	}
	if !r.server.IsSafe() && (len(r.headers) > 0 || r.tokenFile != "") {
		return errors.New("--header and --token-file need an https URL or a URL on this machine, to protect the secrets on the network")
	}
	return nil
}

// setServer sets the server to wrap.
func (w *wrapping) setServer(at remote, command []string) (err error) {
	if w.several != nil {
		return nil
	}
	if at.url == "" {
		w.server = config.DefaultUpstream()
		w.server.Command, w.server.Name = command, cmp.Or(w.name, wrapName(command))
		w.name = w.server.Name
		return nil
	}
	w.server, w.client = at.server, at.client
	w.name = cmp.Or(w.name, named(w.server.URL.Hostname(), w.server.URL.String())) // another name for every URL
	w.server.Name = w.name
	if at.tokenFile == "" {
		return nil
	}
	w.token = func() (string, error) { return readToken(at.tokenFile) }
	_, err = w.token() // reports a mistake at once
	return err
}

// maxToken is the size limit of a token file.
const maxToken = 64 << 10

// readToken returns the token in a file. Its errors do not contain the content.
func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := bytes.TrimSpace(text)
	if len(token) == 0 || len(token) > maxToken || bytes.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("%s has no token: it must be one word of printable ASCII characters", file)
	}
	return string(token), nil
}

// launchers are programs, and their subcommands, that start other programs.
var launchers = []string{
	"npx", "npm", "pnpm", "yarn", "bunx", "bun", "deno", "node", "uv", "uvx", "pipx", "python", "python3", "docker", "podman",
	"run", "exec", "dlx", "tool", "cmd", "sh", "bash", "env",
}

var (
	notInNames = regexp.MustCompile(`[^a-z0-9]+`)
	maxBase    = 48 // bytes, without the digest
)

// wrapName returns a name for a command in the current directory. Different commands and
// directories get different names: calls to different servers must never count as the same
// call.
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

// named returns a name that begins with base and ends with a digest of text.
func named(base, text string) string {
	base = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(base), "-"), "-")
	base = strings.Trim(base[:min(len(base), maxBase)], "-")
	sum := sha256.Sum256([]byte(text))
	return cmp.Or(base, "server") + "-" + hex.EncodeToString(sum[:4])
}
