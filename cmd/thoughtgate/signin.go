package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/signin"
)

// newTokens returns the tokens of a server that people can sign in to, or nil. A server with a
// credential from the command line has no others.
func (w *wrapping) newTokens(cfg config.Config, log *slog.Logger) *signin.Tokens {
	_, authorized := w.server.Headers["Authorization"]
	if w.server.URL == nil || w.token != nil || authorized || !w.server.IsSafe() || cfg.StateDir == "" {
		return nil
	}
	server := w.server.URL.String()
	return signin.New(signin.Config{
		URL: server, Name: w.name, Store: signIns(cfg.StateDir), HTTP: signInClient(server), Open: browser(cfg.WrappedEnviron(os.Environ())), Log: log, Now: time.Now,
		Say: func(how string) { _, _ = fmt.Fprintf(w.stderr, "thoughtgate: %s: to sign in, %s\n", w.name, how) },
	})
}

// signIns returns the sign-ins in a state directory.
func signIns(state string) *signin.Store {
	if hasKeyring() {
		return signin.NewStore(state, signin.SystemKeyring{})
	}
	return signin.NewStore(state, nil)
}

// signInClient returns the client for requests about the OAuth of a server.
func signInClient(server string) *http.Client { return oauth.HTTPClient(nil, server) }

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
	case os.Getenv("BROWSER") != "":
		return []string{os.Getenv("BROWSER")}
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

func newLogout() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logout NAME",
		Short: "Sign out of a server that wrap has signed in to",
		Long: "Remove the tokens of a server that thoughtgate wrap --url has signed in to, and revoke them at its authorization\n" +
			"server. NAME is the --name of a wrap, or the URL of the server.",
		Args: positional(cobra.ExactArgs(1)),
	}
	file := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		cfg, err := deskConfig(*file)
		if err != nil {
			return err
		}
		ended, err := signIns(cfg.StateDir).Logout(cmd.Context(), names[0], signInClient)
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
