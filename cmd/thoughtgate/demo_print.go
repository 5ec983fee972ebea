package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
)

// A printer prints what the demo's gate holds and what becomes of it. It learns
// that as any approver could, from the operators' API.
type printer struct {
	out    *screen
	client *client.Client
}

func newPrinter(w io.Writer, gate *app.App) (*printer, error) {
	c, err := client.New(client.Config{URL: "http://" + gate.OperatorAddr(), Token: gate.MadeToken()})
	return &printer{newScreen(w), c}, err
}

// run prints events until ctx is done.
func (t *printer) run(ctx context.Context) error {
	following, ctx := errgroup.WithContext(ctx)
	for e, err := range t.client.Watch(ctx) {
		if err == nil {
			err = t.print(e)
		}
		if _, lost := errors.AsType[*client.LostError](err); err != nil && !lost {
			following.Go(func() error { return err })
			break
		}
		if e.Kind == client.Settled && !e.Approval.State.Terminal() {
			following.Go(func() error { return t.follow(ctx, e.Approval) })
		}
	}
	return following.Wait()
}

// print prints an event.
func (t *printer) print(e client.Event) error {
	a := e.Approval
	switch e.Kind {
	case client.Pending:
		return t.held(a)
	case client.Settled:
		return t.out.line("%s  %s", a.ID.Short(), t.out.standing(a))
	default:
		return nil
	}
}

// held prints a call that waits, with what can be done about it.
func (t *printer) held(a casefile.Approval) error {
	lines := []string{
		fmt.Sprintf("%s  %s  %s", a.ID.Short(), t.out.standing(a), callText(a)),
		fmt.Sprintf("requested by %s; %s; %s left", requester(a), oneLine(a.Reason, maxCell), span(time.Until(a.ExpiresAt))),
		fmt.Sprintf("thoughtgate approvals approve %s", a.ID.Short()),
		fmt.Sprintf("thoughtgate approvals reject %s --reason 'not this one'", a.ID.Short()),
	}
	return t.out.line("%s", strings.Join(lines, "\n    "))
}

// glance is how often a call that was approved is looked at.
const glance = 200 * time.Millisecond

// follow prints what becomes of a call after its approval.
func (t *printer) follow(ctx context.Context, a casefile.Approval) error {
	again := time.NewTicker(glance)
	defer again.Stop()
	for !a.State.Terminal() {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
		now, err := t.client.Show(ctx, a.ID)
		if err != nil {
			return nil // the gate stops, and the call with it
		}
		a = now
	}
	return t.out.line("%s  %s", a.ID.Short(), t.out.standing(a))
}
