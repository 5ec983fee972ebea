package e2e_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// gateTo runs a gate with default settings in front of the server at url, and returns the
// gate's URL for agents.
func gateTo(t *testing.T, url string) string {
	t.Helper()
	cfg, _, err := config.Load(config.Sources{Overrides: []config.Override{
		{Setting: "listen", Values: []string{"127.0.0.1:0"}},
		{Setting: "operators.listen", Values: []string{"127.0.0.1:0"}},
		{Setting: "upstreams", Values: []string{url}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := app.New(cfg, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	return run(t, gate)
}

// run runs a gate until the test ends, and returns its URL for agents.
func run(t *testing.T, gate *app.App) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- gate.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := receive(t, stopped); err != nil {
			t.Errorf("gate: %v", err)
		}
	})
	return "http://" + gate.AgentAddr() + "/mcp"
}
