package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
)

// settleTime is how long files must have been left alone before they are read:
// an editor, or a volume that is swapped, changes several in a row.
const settleTime = 100 * time.Millisecond

// A Source is where the configuration comes from, so that it can be read again.
type Source struct {
	Load   func() (config.Config, error)
	Signal <-chan os.Signal // asks for it to be read again; nil if nobody does
}

// reloader takes over changed configuration while the gate runs.
type reloader struct {
	app     *App
	source  Source
	current config.Config
	watcher *fsnotify.Watcher
	watched []string
}

// ReloadFrom makes [App.Run] read the configuration again whenever a file of it
// changes or source's signal says so. What can change while the gate runs does
// so at once and as a whole; a configuration that is wrong changes nothing.
func (a *App) ReloadFrom(source Source) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the configuration: %w", err)
	}
	a.reloader = &reloader{app: a, source: source, current: a.cfg, watcher: watcher}
	return a.reloader.watch(a.cfg.Watch)
}

// watch follows directories rather than files: a file that is replaced, as
// editors and Kubernetes do, is another one.
func (r *reloader) watch(dirs []string) error {
	for _, dir := range dirs {
		if slices.Contains(r.watched, dir) {
			continue
		}
		if err := r.watcher.Add(dir); err != nil {
			return fmt.Errorf("watch %s: %w", dir, err)
		}
		r.watched = append(r.watched, dir)
	}
	return nil
}

// run reloads until ctx is done.
func (r *reloader) run(ctx context.Context) {
	settled := time.NewTimer(time.Hour)
	settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-r.watcher.Events:
			if !ok {
				return
			}
			settled.Reset(settleTime)
		case err := <-r.watcher.Errors:
			r.app.log.WarnContext(ctx, "watching the configuration failed", "err", err)
		case <-r.source.Signal:
			r.reload(ctx)
		case <-settled.C:
			r.reload(ctx)
		}
	}
}

// errPolicyGone reports a configuration that would open a gate which has rules.
// A file that is still being written looks like that.
var errPolicyGone = errors.New("there are no rules any more; to forward everything, say default: forward")

func (r *reloader) reload(ctx context.Context) {
	err := r.apply(ctx)
	r.app.configProblem.Store(&err)
	if err != nil {
		r.app.metrics.Reloaded(metrics.Error)
		r.app.log.ErrorContext(ctx, "the changed configuration is not taken over", "err", err)
		return
	}
	r.app.metrics.Reloaded(metrics.Success)
}

// apply takes over the configuration if it is right and has changed.
func (r *reloader) apply(ctx context.Context) error {
	cfg, err := r.source.Load()
	if err != nil {
		return err
	}
	settings, warnings, err := Settings(cfg)
	if err != nil {
		return err
	}
	if settings.Policy == nil && r.app.gate.Governs() {
		return errPolicyGone
	}
	for _, w := range warnings {
		r.app.log.WarnContext(ctx, "policy", "warning", w.String())
	}
	if err := r.watch(cfg.Watch); err != nil {
		return err
	}
	if needsRestart(r.current, cfg) {
		r.app.log.WarnContext(ctx, "some of the changes take effect only when the gate is started again")
	}
	r.current = cfg
	r.app.workflows.Store(&cfg.Workflows)
	seenOtherwise := r.app.gate.Swap(settings)
	r.app.log.InfoContext(ctx, "configuration taken over", "lists_changed", seenOtherwise)
	if seenOtherwise {
		r.app.handler.ListsChanged()
	}
	return nil
}

// needsRestart reports whether anything differs that is fixed at the start.
func needsRestart(old, changed config.Config) bool {
	return !reflect.DeepEqual(fixed(old), fixed(changed))
}

// fixed returns what of a configuration is fixed at the start, in a form that
// can be compared.
func fixed(c config.Config) []any {
	parts := []any{c.Listen, c.ListenTLS, c.Operators, c.Operators.Token.Reveal(), c.Operators.OIDC.ClientSecret.Reveal(), c.Identity, c.AllowedHosts, c.AllowedOrigins, c.Limits, c.Shutdown, c.Telemetry.Log, c.Store.Reveal(), c.Storage.Keys.Reveal(), c.Storage.Timeout, c.Storage.Connections, c.Storage.Retention, c.Audit}
	for _, u := range c.Upstreams {
		parts = append(parts, reveal(u.Headers))
		u.Headers = nil
		parts = append(parts, u)
	}
	return parts
}
