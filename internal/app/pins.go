package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/toolpin"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A ToolLister lists the tools of upstreams. It must be closed.
type ToolLister struct{ app *App }

// NewToolLister returns a lister for some upstreams of cfg.
func NewToolLister(cfg config.Config, upstreams []string, log *slog.Logger) (*ToolLister, error) {
	cfg.Endpoints = nil
	cfg.Policy, cfg.Channels, cfg.Tasks.ForceRequired = config.Policy{Workflows: cfg.Workflows}, nil, nil
	cfg.Upstreams = slices.DeleteFunc(slices.Clone(cfg.Upstreams), func(u config.Upstream) bool { return !slices.Contains(upstreams, u.Name) })
	a, err := build(cfg, log, func(a *App) error {
		if _, err := a.servers.connect(); err != nil {
			return err
		}
		// Connections to servers that want OAuth are in the store.
		if err := a.approvals.open(); err != nil {
			return err
		}
		a.servers.connections.Open(a.approvals.store.Store, a.approvals.store.ring, "")
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &ToolLister{a}, nil
}

// Close ends the servers that are programs.
func (l *ToolLister) Close() error { return l.app.Close() }

// List returns the tools as the servers list them now, with the credentials of the configuration.
// It starts servers that are programs.
func (l *ToolLister) List(ctx context.Context) (toolpin.File, error) {
	file := toolpin.File{}
	var failed []error
	for _, client := range l.app.servers.clients {
		tools, err := listTools(ctx, client)
		if err != nil {
			failed = append(failed, fmt.Errorf("upstream %s: %w", client.Name(), err))
		}
		file[client.Name()] = tools
	}
	return file, errors.Join(failed...)
}

// listTools returns the tools of a server.
func listTools(ctx context.Context, client *httpclient.Client) (toolpin.Tools, error) {
	tools, size := toolpin.Tools{}, 0
	session, err := client.Upstream().Tools(ctx, func(definition jsonrpc.Value) error {
		if size += len(definition.Bytes); size > toolpin.MaxFile {
			return fmt.Errorf("the definitions of its tools have more than %d bytes", toolpin.MaxFile)
		}
		return tools.Add(definition)
	})
	if session != nil {
		endSession(ctx, client, session)
	}
	return tools, err
}

// endSession ends a session, if the server allows that.
func endSession(ctx context.Context, client *httpclient.Client, session http.Header) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	resp, err := client.Do(ctx, httpclient.Peer{Use: httpclient.Plain}, &http.Request{Method: http.MethodDelete, URL: new(url.URL), Header: session}, nil)
	if err == nil {
		_ = resp.Body.Close()
	}
}
