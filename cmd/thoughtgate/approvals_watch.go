package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
)

func newWatch(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show held calls as they arrive, and decide them",
		Long: "On a terminal, show the pending calls on a live screen on which you can look at each and approve or reject it,\n" +
			"and notify you of new ones on the desktop if notify-send or osascript is there.\n\n" +
			"Otherwise, or with --plain, print one line for each pending call, for each new one, and for each one that is\n" +
			"decided or expires. Press Ctrl-C to stop. A lost connection is reopened.",
		Args: noArguments,
	}
	asJSON := cmd.Flags().Bool("json", false, "print each event as a line of JSON")
	asLines := cmd.Flags().Bool("plain", false, "print lines, also on a terminal")
	quiet := cmd.Flags().Bool("no-notify", false, "show no desktop notifications")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := g.config()
		if err != nil {
			return err
		}
		if *asJSON || *asLines || !isTerminal(cmd.OutOrStdout()) || !isTerminal(os.Stdin) || os.Getenv("TERM") == "dumb" {
			return watchLines(cmd, cfg, *asJSON)
		}
		notify := func(casefile.Approval) {}
		if !*quiet {
			notify = newNotifier(cmd.Context(), exec.LookPath).notify
		}
		return runTUI(cmd.Context(), cfg, notify)
	}
	return cmd
}

// watchLines prints a line for each event.
func watchLines(cmd *cobra.Command, cfg client.Config, asJSON bool) error { //nolint:revive // the flag is the user's
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	out := newScreen(cmd.OutOrStdout())
	show := out.event
	if asJSON {
		show = out.jsonEvent
	}
	for e, err := range c.Watch(cmd.Context()) {
		if lost, ok := errors.AsType[*client.LostError](err); ok {
			note := oneLine(lost.Error(), maxCell)
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s; trying again in %v\n", note, lost.Retry.Round(100*time.Millisecond))
			continue
		}
		if err != nil {
			return explained(err)
		}
		if err := show(e, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// event prints one line.
func (s *screen) event(e client.Event, now time.Time) error {
	a := e.Approval
	clock := now.Format(time.TimeOnly)
	switch e.Kind {
	case client.Pending:
		who, left := requester(a), span(a.ExpiresAt.Sub(now))
		return s.line("%s  %s  %s  %s  for %s, %s left", clock, s.standing(a), a.ID, callText(a), who, left)
	case client.Settled:
		return s.line("%s  %s  %s  %s", clock, s.standing(a), a.ID, callText(a))
	case client.Gone:
		return s.line("%s  %s  %s  %s", clock, s.paint(dim, "no longer known to the gate"), a.ID, callText(a))
	default: // of a later gate
		return nil
	}
}

func (s *screen) jsonEvent(e client.Event, _ time.Time) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.w, plain.Escape(string(text)))
	return err
}
