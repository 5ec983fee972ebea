package app

import (
	"crypto/tls"
	"log/slog"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/listener"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/version"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// A base is what all parts of a gate share.
type base struct {
	cfg     config.Config // that the gate was started with
	log     *slog.Logger
	metrics *metrics.Metrics
	tracing *tracing.Tracing
	room    descriptors
}

func newBase(cfg config.Config, log *slog.Logger) (_ *base, err error) {
	b := &base{cfg: cfg, log: log, metrics: newMetrics()}
	b.tracing, err = newTracing(cfg.Telemetry.Traces, log)
	return b, err
}

func newTracing(cfg config.Traces, log *slog.Logger) (*tracing.Tracing, error) {
	if cfg.Endpoint == nil {
		return nil, nil //nolint:nilnil // a nil Tracing is one that is off
	}
	return tracing.New(tracing.Config{
		Endpoint: cfg.Endpoint.String(),
		Headers:  reveal(cfg.Headers),
		Sample:   cfg.Sample,
		Version:  version.This().Version,
	}, log)
}

func reveal(secrets map[string]config.Secret) map[string]string {
	plain := make(map[string]string, len(secrets))
	for name, secret := range secrets {
		plain[name] = secret.Reveal()
	}
	return plain
}

// listenerConfig says how a listener is bound that has no room for connections yet.
func (b *base) listenerConfig(who, address string, secure *tls.Config) listener.Config {
	return listener.Config{
		For: who, Address: address, TLS: secure, Keepalive: b.cfg.Limits.Keepalive, MaxHeader: int(b.cfg.Limits.MaxHeader),
		Context: mcphttp.WithLocalUser, Refused: func(t wire.Type) { b.metrics.Refused(string(t)) }, Log: b.log,
	}
}
