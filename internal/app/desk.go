package app

import (
	"context"
	"crypto/tls"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/httpserver"
	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
)

// joinDesk makes this gate one of those that serve the inbox of all the user's gates. If a
// newer gate has updated the store, this one closes its listener for good, and its clients
// reconnect to another gate.
func (o *operators) joinDesk(secure *tls.Config) error {
	desk, err := localdesk.Join(o.base.cfg.StateDir, o.base.log)
	if err != nil {
		return err
	}
	l, err := desk.Listen(o.base.cfg.Operators.OSUsers, func(ctx context.Context) error { return o.auth.Load().EndAll(ctx) })
	if err != nil {
		return err
	}
	o.desk, o.generatedToken = desk, desk.SignIn()
	o.listener = httpserver.New(l, o.listenerConfig(o.base.cfg.Operators.Listen, secure))
	o.approvals.sharedStore, o.approvals.outdated = true, o.listener.CloseConnections
	return nil
}

// NewDesk builds an App that only serves the shared inbox and holds no calls itself. The
// desk has its own tokens and address, so the operators' settings in cfg do not apply.
func NewDesk(cfg config.Config, log *slog.Logger) (*App, error) {
	cfg.Store = config.NewSecret(config.DeskStore)
	cfg.Upstreams = nil
	o := cfg.Operators
	cfg.Operators = config.Operators{Listen: o.Listen, Session: o.Session, OSUsers: o.OSUsers}
	return build(cfg, log, func(a *App) error {
		a.serve, a.base.connections.operators = a.serveDesk, operatorConnections
		if err := a.operators.bind(nil); err != nil {
			return err
		}
		if err := a.openApprovals(); err != nil {
			return err
		}
		return a.operators.configure(cfg)
	})
}

// serveDesk serves the shared inbox until the context "until" ends.
func (a *App) serveDesk(ctx, until context.Context, _ *errgroup.Group) error {
	<-until.Done()
	a.operators.status.ready.Store(false)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.shutdown.Load().Drain)
	defer cancel()
	err := a.approvals.service.Close(stopping)
	a.operators.listener.CloseConnections()
	return err
}
