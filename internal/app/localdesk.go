package app

import (
	"context"
	"crypto/tls"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/listener"
	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
)

// joinDesk takes part in serving the inbox that all gates of a user share. If a newer
// gate has updated the store, this one leaves serving to others, for good: whoever is
// connected connects again, to another.
func (o *operators) joinDesk(secure *tls.Config) error {
	desk, err := localdesk.Join(o.cfg.StateDir, o.log)
	if err != nil {
		return err
	}
	l, err := desk.Listen(func(ctx context.Context) error { return o.auth.Load().EndAll(ctx) })
	if err != nil {
		return err
	}
	o.local, o.madeToken = desk, desk.Token()
	o.listener = listener.New(l, o.listenerConfig(o.cfg.Operators.Listen, secure))
	o.approvals.mixed, o.approvals.outdated = true, o.listener.Cut
	return nil
}

// NewDesk builds the inbox that all gates of a user share, without a gate. It holds
// no calls: others do. [App.RunDesk] takes part in serving it. The desk has a token and
// an address of its own: what cfg says of the operators of a gate does not count.
func NewDesk(cfg config.Config, log *slog.Logger) (_ *App, err error) {
	cfg.Store = config.NewSecret(config.DeskStore)
	cfg.Upstreams = nil
	o := cfg.Operators
	cfg.Operators = config.Operators{Listen: o.Listen, Session: o.Session, MaxConnections: o.MaxConnections}
	a, err := newApp(cfg, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = a.Close()
		}
	}()
	a.room.operators = cfg.Operators.MaxConnections
	if err := a.operators.bind(nil); err != nil {
		return nil, err
	}
	if err := a.govern(); err != nil {
		return nil, err
	}
	return a, a.operators.configure(cfg)
}

// RunDesk takes part in serving the inbox until ctx is done.
func (a *App) RunDesk(ctx context.Context) error {
	after := context.WithoutCancel(ctx) // stopping has time of its own
	defer func() { _ = a.close(after) }()
	serving, ctx := errgroup.WithContext(ctx)
	a.operators.status.ready.Store(true)
	serving.Go(a.operators.listener.Serve)
	serving.Go(func() error { return a.runDesk(ctx) })
	serving.Go(func() error {
		<-ctx.Done()
		a.operators.status.ready.Store(false)
		stopping, cancel := context.WithTimeout(after, a.shutdown.Load().Drain)
		defer cancel()
		err := a.approvals.desk.Close(stopping)
		a.operators.listener.Cut()
		return err
	})
	return serving.Wait()
}
