package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

func newDesk() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "desk",
		Short: "Serve the inbox of all your gates",
		Long: "Serve the inbox that all your gates with the store desk: share, even if none of them runs.\n" +
			"You rarely need this: a gate that runs serves the inbox by itself, and this command waits until that gate ends.",
		Args: noArguments,
	}
	file := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := deskConfig(*file)
		if err != nil {
			return err
		}
		level := new(slog.LevelVar)
		level.Set(cfg.Telemetry.Log.Level)
		a, err := app.NewDesk(cfg, logging.New(cmd.ErrOrStderr(), cfg.Telemetry.Log.Format, level))
		if err != nil {
			return err
		}
		if err := showDesk(cmd.ErrOrStderr(), a); err != nil {
			return errors.Join(err, a.Close())
		}
		return a.RunDesk(cmd.Context())
	}
	cmd.AddCommand(newDeskLink())
	return cmd
}

// deskConfig returns the settings of a desk. Those of a gate do not matter.
func deskConfig(file string) (config.Config, error) {
	cfg, _, err := config.LoadStorage(config.Sources{File: file, Environ: os.Environ()})
	return cfg, err
}

// showDesk shows a person at a terminal how to sign in. Other output is collected,
// and read by others.
func showDesk(w io.Writer, a *app.App) error {
	if !isTerminal(w) {
		return a.KeepToken()
	}
	_, err := fmt.Fprintf(w, "open in a browser to sign in: %s\n", a.LoginLink())
	return err
}

func newDeskLink() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "link",
		Short: "Print the link that signs you in to the inbox of your gates",
		Long: "Print the link that signs a browser in to the inbox of your gates. Whoever has the link can decide in your name,\n" +
			"for good: it has the token in it, which is in a file that only you can read.",
		Args: noArguments,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		at, err := findDesk()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), at.URL+"/login?token="+at.Token)
		return err
	}
	return cmd
}

// findDesk returns where the inbox of the user's gates is served.
func findDesk() (localdesk.Place, error) {
	cfg, err := deskConfig("")
	if err != nil {
		return localdesk.Place{}, err
	}
	at, err := localdesk.Find(cfg.StateDir)
	if errors.Is(err, localdesk.ErrNone) || errors.Is(err, localdesk.ErrNotRunning) {
		return at, fmt.Errorf("%w: start a gate, or run thoughtgate desk", err)
	}
	return at, err
}
