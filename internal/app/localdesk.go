package app

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
)

// joinDesk takes part in serving the inbox that all gates of a user share.
func (a *App) joinDesk(p place) error {
	desk, err := localdesk.Join(a.cfg.StateDir, a.log)
	if err != nil {
		return err
	}
	l, err := desk.Listen()
	if err != nil {
		return err
	}
	a.local, a.mixed, a.madeToken = desk, true, desk.Token()
	a.operators = a.serveOn(l, p)
	return nil
}

// resign leaves serving to another process, for good. Whoever is connected connects
// again, to that one.
func (l *listener) resign() { _ = l.server.Close() }

// NewDesk builds the inbox that all gates of a user share, without a gate. It holds
// no calls: others do. [App.RunDesk] takes part in serving it.
func NewDesk(cfg config.Config, log *slog.Logger) (_ *App, err error) {
	cfg.Store = config.NewSecret(config.DeskStore)
	cfg.Upstreams = nil
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
	if err := a.bindOperators(nil); err != nil {
		return nil, err
	}
	if err := a.govern(); err != nil {
		return nil, err
	}
	return a, a.serveOperators(cfg)
}

// RunDesk takes part in serving the inbox until ctx is done.
func (a *App) RunDesk(ctx context.Context) error {
	after := context.WithoutCancel(ctx) // stopping has time of its own
	defer func() { _ = a.close(after) }()
	serving, ctx := errgroup.WithContext(ctx)
	a.ready.Store(true)
	serving.Go(a.operators.serve)
	serving.Go(func() error { return a.runDesk(ctx) })
	serving.Go(func() error {
		<-ctx.Done()
		a.ready.Store(false)
		stopping, cancel := context.WithTimeout(after, a.shutdown.Load().Drain)
		defer cancel()
		err := a.desk.Close(stopping)
		a.operators.resign()
		return err
	})
	return serving.Wait()
}
