package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/signin"
)

// newTokens returns the tokens of a server that people can sign in to, or nil. A server with a
// credential from the command line has no others.
func (w *wrapping) newTokens(cfg config.Config, log *slog.Logger, server config.Upstream) *signin.Tokens {
	_, authorized := server.Headers["Authorization"]
	if server.URL == nil || w.token != nil || authorized || server.OAuth.Grant != "" || !server.IsSafe() || cfg.StateDir == "" {
		return nil
	}
	return w.client.tokens(cfg, log, server, w.stderr)
}

// A signInClient has the flags for the client that the authorization server knows.
type signInClient struct{ id, secret, issuer string }

func (c *signInClient) flags(flags *pflag.FlagSet) {
	flags.StringVar(&c.id, "client-id", "", "`id` of the OAuth client that you have registered with http://127.0.0.1/callback, if the server's authorization server wants that")
	flags.StringVar(&c.secret, "client-secret", "", "its `secret`, as env:VARIABLE")
	flags.StringVar(&c.issuer, "issuer", "", "`URL` of the only authorization server to use; it may have a private address")
}

// check returns an error if the flags contradict each other or contain a secret.
func (c *signInClient) check() error {
	switch {
	case c.secret != "" && c.id == "":
		return errors.New("--client-secret needs --client-id")
	case c.secret != "" && !strings.HasPrefix(c.secret, fromEnvironment):
		return errors.New("other users can read the command line: give --client-secret as env:VARIABLE")
	case c.secret != "" && c.secretValue() == "":
		return errors.New("the environment variable of --client-secret is empty")
	case c.secret != "" && c.issuer == "":
		return errors.New("--client-secret needs --issuer: otherwise the server could have the secret sent anywhere")
	default:
		return nil
	}
}

func (c *signInClient) secretValue() string {
	if c.secret == "" {
		return ""
	}
	return os.Getenv(strings.TrimPrefix(c.secret, fromEnvironment))
}

// tokens returns the tokens of a server.
func (c *signInClient) tokens(cfg config.Config, log *slog.Logger, server config.Upstream, stderr io.Writer) *signin.Tokens {
	target := server.URL.String()
	return signin.New(signin.Config{
		URL: target, Name: server.Name, ID: c.id, Secret: c.secretValue(), Issuer: c.issuer,
		Store: signIns(cfg.StateDir), HTTP: oauthClient(target, c.issuer), Open: browser(cfg.WrappedEnviron(os.Environ())), Log: log, Now: time.Now,
		Say: func(how string) { _, _ = fmt.Fprintf(stderr, "thoughtgate: %s: to sign in, %s\n", server.Name, how) },
	})
}

// signIns returns the sign-ins in a state directory.
func signIns(state string) *signin.Store {
	if hasKeyring() {
		return signin.NewStore(state, signin.SystemKeyring{})
	}
	return signin.NewStore(state, nil)
}

// oauthClient returns the client for requests about the OAuth of a server. The issuer may be empty.
func oauthClient(server, issuer string) *http.Client { return oauth.HTTPClient(nil, server, issuer) }

// hasKeyring reports whether there may be a keyring. Without a bus for its messages, the library
// would start one.
func hasKeyring() bool {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" || os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return true
	}
	_, err := os.Stat(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "bus"))
	return os.Getenv("XDG_RUNTIME_DIR") != "" && err == nil
}

// browser returns a function that opens a browser with this environment, or nil if the machine has
// none.
func browser(environ []string) func(ctx context.Context, link string) error {
	command := browserCommand()
	if command == nil {
		return nil
	}
	return func(ctx context.Context, link string) error {
		c := exec.CommandContext(context.WithoutCancel(ctx), command[0], append(command[1:], link)...) // without standard output, which is for MCP
		c.Env = environ
		if err := c.Start(); err != nil {
			return err
		}
		go func() { _ = c.Wait() }()
		return nil
	}
}

// browserCommand returns the program that opens links, and its first arguments.
func browserCommand() []string {
	isRemote := os.Getenv("SSH_CONNECTION") != ""
	switch {
	case len(browserVariable()) > 0:
		return browserVariable()
	case runtime.GOOS == "darwin" && !isRemote:
		return []string{"open"}
	case runtime.GOOS == "windows" && !isRemote:
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	case os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "":
		return []string{"xdg-open"}
	default:
		return nil
	}
}

// browserVariable returns the program that BROWSER names, and its arguments. BROWSER may name several, of
// which the first counts, and %s stands for the link, which is the last argument anyway.
func browserVariable() []string {
	all := os.Getenv("BROWSER")
	if _, err := exec.LookPath(all); err == nil { // a path may have spaces
		return []string{all}
	}
	first, _, _ := strings.Cut(all, string(os.PathListSeparator))
	return slices.DeleteFunc(strings.Fields(first), func(word string) bool { return word == "%s" })
}

func newLogin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "login URL",
		Short: "Sign in to a server before wrap uses it",
		Long: "Sign in to the MCP server at URL, which wants OAuth. thoughtgate wrap --url does so by itself when the server refuses\n" +
			"a request; this command is for agents that do not wait so long, and for machines without a browser.",
		Args: oneArgument,
	}
	file := configFlag(cmd)
	name := cmd.Flags().String("name", "", "`name` for thoughtgate logout (default: made from the URL)")
	var at remote
	at.client.flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at.url = args[0]
		if err := cmp.Or(at.check(nil), at.read()); err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		cfg, err := deskConfig(*file)
		if err != nil {
			return err
		}
		w := wrapping{name: *name, stderr: cmd.ErrOrStderr()}
		if err := w.setServer(at, nil); err != nil {
			return err
		}
		log, _ := newLog(cmd.ErrOrStderr(), cfg, nil)
		tokens := w.newTokens(cfg, log, w.server)
		if tokens == nil {
			return errors.New("a sign-in needs an https URL or a URL on this machine, and a state directory")
		}
		defer tokens.Close()
		if err := tokens.SignIn(cmd.Context()); err != nil {
			if cmd.Context().Err() != nil {
				return errors.New("the sign-in was interrupted")
			}
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "signed in to %s\n", w.server.URL)
		return err
	}
	return cmd
}

func newLogout() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logout NAME",
		Short: "Sign out of a server that wrap has signed in to",
		Long: "Remove the tokens of a server that thoughtgate wrap --url has signed in to, and revoke them at its authorization\n" +
			"server. NAME is the --name of a wrap, or the URL of the server.",
		Args: oneArgument,
	}
	file := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		cfg, err := deskConfig(*file)
		if err != nil {
			return err
		}
		ended, err := signIns(cfg.StateDir).Logout(cmd.Context(), names[0], oauthClient)
		for _, l := range ended {
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "signed out of %s\n", l.URL)
			if l.Revoked != nil {
				err = errors.Join(err, fmt.Errorf("the tokens of %s are removed here, but not revoked: %w", l.URL, l.Revoked))
			}
		}
		return err
	}
	return cmd
}
