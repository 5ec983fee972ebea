package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
)

func newWatch(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Tell of held calls as they come, and what becomes of them",
		Long:  "Tell of the calls that wait for a decision, of each new one, and of each that no longer waits, one line each.\nEnds with Ctrl-C. If the connection is lost, it is made again.",
		Args:  noArguments,
	}
	asJSON := cmd.Flags().Bool("json", false, "print each event as a line of JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := g.client()
		if err != nil {
			return err
		}
		out := newScreen(cmd.OutOrStdout())
		show := out.event
		if *asJSON {
			show = out.jsonEvent
		}
		for e, err := range c.Watch(cmd.Context()) {
			if lost, ok := errors.AsType[*client.LostError](err); ok {
				note := oneLine(lost.Error(), maxCell)
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s; trying again in %v\n", note, lost.Retry.Round(100*time.Millisecond))
				continue
			}
			if err != nil {
				return told(err)
			}
			if err := show(e, time.Now()); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
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
		return s.line("%s  %s  %s  %s", clock, s.paint(dim, "unknown to the gate by now"), a.ID, callText(a))
	default: // of a later gate
		return nil
	}
}

func (s *screen) jsonEvent(e client.Event, _ time.Time) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.line("%s", approval.Visible(string(text)))
}
