package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
)

func newDesk() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "desk",
		Short: "Serve the inbox of all your gates",
		Long: "Serve the inbox of your desk: the store and inbox that all your gates with the store desk: share.\n" +
			"You rarely need this command, because a running gate serves the inbox itself. Then this command waits until that gate ends.",
		Args: noArguments,
	}
	file := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := deskConfig(*file)
		if err != nil {
			return err
		}
		log, _ := newLog(cmd.ErrOrStderr(), cfg, nil)
		a, err := app.NewDesk(cfg, log)
		if err != nil {
			return err
		}
		if err := showDesk(cmd.ErrOrStderr(), a); err != nil {
			return errors.Join(err, a.Close())
		}
		return a.Run(cmd.Context())
	}
	cmd.AddCommand(newDeskLink())
	return cmd
}

// deskConfig returns the settings of a desk.
func deskConfig(file string) (config.Config, error) {
	cfg, _, err := config.LoadStorage(config.Sources{File: file, Environ: os.Environ()})
	return cfg, err
}

// showDesk prints the sign-in link on a terminal. Elsewhere it only logs the file of the
// token, because other people may read the output.
func showDesk(w io.Writer, a *app.App) error {
	if !isTerminal(w) {
		return a.SaveToken()
	}
	_, _ = fmt.Fprintf(w, "open in a browser to sign in: %s\n", a.LoginLink())
	return showPasskeyLink(w, a)
}

func newDeskLink() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "link",
		Short: "Print the link that signs you in to the inbox of your gates",
		Long: "Print the link that signs a browser in to the inbox of your gates. Keep it secret: it contains a permanent secret,\n" +
			"and anyone who has it can decide in your name.",
		Args: noArguments,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		inbox, err := findInbox()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), inbox.URL+"/login?token="+cmp.Or(inbox.SignIn, inbox.Token))
		return err
	}
	return cmd
}

// findInbox returns the inbox that the user's gates share.
func findInbox() (localdesk.Inbox, error) {
	cfg, err := deskConfig("")
	if err != nil {
		return localdesk.Inbox{}, err
	}
	inbox, err := localdesk.Find(cfg.StateDir)
	if errors.Is(err, localdesk.ErrNoDesk) || errors.Is(err, localdesk.ErrNotRunning) {
		return inbox, fmt.Errorf("%w: start a gate, or run thoughtgate desk", err)
	}
	return inbox, err
}
