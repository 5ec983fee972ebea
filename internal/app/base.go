package app

import (
	"crypto/tls"
	"log/slog"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/httpserver"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/version"
)

// A base holds what all parts of a gate share.
type base struct {
	cfg         config.Config // at start
	log         *slog.Logger
	metrics     *metrics.Metrics
	tracing     *tracing.Tracing
	connections connectionLimits
}

func newBase(cfg config.Config, log *slog.Logger) (_ *base, err error) {
	b := &base{cfg: cfg, log: log, metrics: newMetrics()}
	b.tracing, err = newTracing(cfg.Telemetry.Traces, log)
	return b, err
}

func newTracing(cfg config.Traces, log *slog.Logger) (*tracing.Tracing, error) {
	if cfg.Endpoint == nil {
		return nil, nil // a nil Tracing does nothing
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

// listenerConfig returns the settings that both listeners share.
func (b *base) listenerConfig(name, address string, secure *tls.Config) httpserver.Config {
	return httpserver.Config{
		Name: name, Address: address, TLS: secure, Keepalive: b.cfg.Limits.Keepalive, MaxHeader: int(b.cfg.Limits.MaxHeader),
		Context: mcphttp.WithLocalUser, Refused: func(t mcp.Type) { b.metrics.Refused(string(t)) }, Log: b.log,
	}
}
